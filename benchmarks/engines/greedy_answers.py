"""What the engines say: greedy answers to a few plain prompts, compared with float32.

Not a test of quality (`benchmarks/precision` is): it shows that every engine computes this model
and not garbage at high speed. Greedy text diverges at the first near tie, so only the length of
the common beginning is told, and whether the text is degenerate.
"""

from dataclasses import dataclass
from pathlib import Path

from benchmarks.engines.jobs import Ask, Worker
from benchmarks.engines.target import BareTarget, ServedTarget

from steelyard.checkpoints import open_checkpoint
from steelyard.text.text_model import TextModel, open_text_model

__all__ = ["REFERENCE", "Answers", "Likeness", "compare"]

REFERENCE = "float32"
_TOKENS = 48
_TEXTS = (
    "The capital of France is",
    "Once upon a time, in a small village by the sea,",
    "def fibonacci(n):\n    ",
    "Water boils at 100 degrees Celsius at sea level. On a high mountain,",
)


@dataclass(frozen=True, slots=True)
class Likeness:
    """Of one engine's answers to the reference's."""

    same: int
    """Answers that are equal."""
    answers: int
    common_share: float
    """Characters before the first difference, of all."""
    least_words: int
    """Distinct words of its poorest answer."""


class Answers:
    """Asks every engine the same; token ids, so that no tokenizer but ours matters."""

    def __init__(self, gguf: Path) -> None:
        self._gguf = gguf
        self._text: TextModel = open_text_model(open_checkpoint(gguf))
        self._prompts = {text: self._text.encode(text) for text in _TEXTS}

    def of(self, target: ServedTarget) -> dict[str, str]:
        """Prompt → answer."""
        return {text: target.server.complete(ids, _TOKENS) for text, ids in self._prompts.items()}

    def reference(self, settings: list[str]) -> dict[str, str]:
        """Our bare engine's; `settings` make it one in float32."""
        target = BareTarget(REFERENCE, self._gguf, settings)
        try:
            asks = [Ask(ids, _TOKENS) for ids in self._prompts.values()]
            streams = target.run([Worker(asks)]).streams
        finally:
            target.stop()
        texts = (self._text.decode(stream.token_ids) for stream in streams)
        return dict(zip(self._prompts, texts, strict=True))


def compare(answers: dict[str, str], reference: dict[str, str]) -> Likeness:
    """Over all prompts of the reference."""
    common = total = same = 0
    for prompt, wanted in reference.items():
        answer = answers[prompt]
        same += answer == wanted
        total += len(wanted)
        pairs = zip(answer, wanted, strict=False)
        common += next(
            (i for i, (a, b) in enumerate(pairs) if a != b), min(len(answer), len(wanted))
        )
    words = min(len(set(answer.split())) for answer in answers.values())
    return Likeness(same, len(reference), common / total, words)
