"""What each weight precision does to the model's predictions, against float32.

    python benchmarks/precision/quality.py TEXT … [--tokens 8192] [--json FILE]

TEXT are files: plain text, or JSON lines (also .gz) whose strings are taken as text. The text is
cut into sequences of equal length; every position of a sequence predicts the next token of the
text (teacher forcing), through the engine's own runner and KV cache, in chunks as a server would.

    perplexity  exp of the mean negative log-likelihood of the text's tokens
    top-1       share of positions whose most likely token is float32's
    KL          mean Kullback-Leibler divergence from float32's distribution, in nats
    flips       share of positions where float32 is right and the precision is not, and vice versa

A row's result does not depend on how many rows are computed with it (tests/models), so this holds
for decoding too. Differences of perplexity carry the standard error of the paired difference over
sequences.
"""

import argparse
import gzip
import json
import math
import platform
import statistics
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import torch
from torch import Tensor

from steelyard.checkpoints import ModelStore, open_checkpoint
from steelyard.contract import GenerateRequest, SamplingParams
from steelyard.engine.config import EngineConfig
from steelyard.engine.runner import Runner
from steelyard.engine.step_batch import lay_out
from steelyard.scheduling.config import SchedulerConfig
from steelyard.scheduling.scheduler import Scheduler
from steelyard.scheduling.step_plan import StepPlan, StepResult
from steelyard.settings import resolve
from steelyard.text.text_model import open_text_model

REFERENCE = "fp32"
PRECISIONS = ("bf16", "int8", "int4")


@dataclass(slots=True)
class Score:
    """Sums over sequences; all in nats."""

    precision: str
    weight_bytes: int = 0
    losses: list[float] = field(default_factory=list)
    """By sequence: mean negative log-likelihood."""
    positions: int = 0
    same_top: int = 0
    divergence: float = 0.0
    newly_wrong: int = 0
    newly_right: int = 0

    @property
    def perplexity(self) -> float:
        return math.exp(statistics.fmean(self.losses))


class Model:
    """One precision in memory."""

    def __init__(self, gguf: Path, precision: str, context_tokens: int, threads: int) -> None:
        config = EngineConfig(
            checkpoint=str(gguf),
            model=precision,
            listen="unix:/nowhere",
            precision=precision,  # type: ignore[arg-type]  # a name from PRECISIONS
            threads=threads,
            context_tokens=context_tokens,
            cache_dir=str(resolve().cache_dir),
        )
        self._runner = Runner(config)
        loaded = self._runner.load(lambda _share, _what: None)
        self.weight_bytes = int(loaded.details["weights_bytes"])
        self._scheduler = Scheduler(
            SchedulerConfig(
                context_tokens=loaded.context_tokens,
                max_step_tokens=config.max_step_tokens,
                prefix_cache=False,
            ),
            loaded.groups,
            loaded.end_token_ids,
        )
        self._runner.bind(self._scheduler.block_tables)

    def log_probabilities(self, ids: Sequence[int]) -> Tensor:
        """float32 [tokens, vocabulary]: what each position says about the next token."""
        sampling = SamplingParams(max_tokens=1, temperature=0.0, ignore_eos=True)
        request = GenerateRequest(request_id="text", prompt_ids=tuple(ids), sampling=sampling)
        self._scheduler.submit(request, 0.0)
        parts = []
        while self._scheduler.has_work:
            plan = self._scheduler.plan(time.monotonic())
            result = StepResult.nothing()
            if not plan.is_empty:
                logits = self._all_logits(plan)
                parts.append(logits.log_softmax(-1))
                drawn = [0] * sum(piece.samples for piece in plan.slices)
                result = StepResult(drawn, [None] * len(drawn), elapsed_s=0.1)
            self._scheduler.apply(plan, result, time.monotonic())
        return torch.cat(parts)

    def _all_logits(self, plan: StepPlan) -> Tensor:
        batch = lay_out(plan)
        every_row = torch.arange(len(batch.token_ids))
        with torch.inference_mode():
            return self._runner.logits(replace(batch, sample_rows=every_row))


def main() -> None:
    options = _parse()
    gguf = ModelStore(resolve().cache_dir).pull(options.model)
    sequences = read_sequences(
        gguf, options.texts, total=options.tokens, length=options.sequence_tokens
    )
    names = (REFERENCE, *PRECISIONS)
    models = {n: Model(gguf, n, options.sequence_tokens + 16, options.threads) for n in names}
    scores = {name: Score(name, models[name].weight_bytes) for name in names}
    for ids in sequences:
        _score(ids, models, scores)
    rows = [_row(score, scores[REFERENCE]) for score in scores.values()]
    _print(rows, sequences, options)
    if options.json:
        options.json.write_text(json.dumps(rows, indent=2) + "\n")


def _score(ids: list[int], models: dict[str, Model], scores: dict[str, Score]) -> None:
    """Add one sequence to every score."""
    targets = torch.tensor(ids[1:])
    reference = models[REFERENCE].log_probabilities(ids)[:-1]
    top = reference.argmax(-1)
    for name, model in models.items():
        found = reference if name == REFERENCE else model.log_probabilities(ids)[:-1]
        score, own_top = scores[name], found.argmax(-1)
        score.losses.append(-found.gather(1, targets[:, None]).mean().item())
        score.positions += len(targets)
        score.same_top += int((own_top == top).sum())
        score.divergence += (reference.exp() * (reference - found)).sum().item()
        score.newly_wrong += int(((top == targets) & (own_top != targets)).sum())
        score.newly_right += int(((top != targets) & (own_top == targets)).sum())


def _row(score: Score, reference: Score) -> dict[str, float | str]:
    """Means, and the paired difference to the reference with its standard error."""
    pairs = zip(score.losses, reference.losses, strict=True)
    differences = [ours - theirs for ours, theirs in pairs]
    error = statistics.stdev(differences) / math.sqrt(len(differences))
    change = math.expm1(statistics.fmean(differences))
    return {
        "precision": score.precision,
        "weight_mib": round(score.weight_bytes / 2**20, 1),
        "perplexity": round(score.perplexity, 3),
        "change_percent": round(100 * change, 3),
        "change_error_percent": round(100 * error, 3),
        "top1_percent": round(100 * score.same_top / score.positions, 2),
        "kl_nats": round(score.divergence / score.positions, 6),
        "newly_wrong_percent": round(100 * score.newly_wrong / score.positions, 2),
        "newly_right_percent": round(100 * score.newly_right / score.positions, 2),
    }


def read_sequences(gguf: Path, texts: list[Path], *, total: int, length: int) -> list[list[int]]:
    """`total` tokens in sequences of `length`, taken from all texts alike."""
    text_model = open_text_model(open_checkpoint(gguf))
    share = -(-total // (length * len(texts)))
    sequences = []
    for path in texts:
        ids = text_model.encode("\n\n".join(_strings(path)))
        cut = [ids[at : at + length] for at in range(0, len(ids) - length + 1, length)]
        sequences += cut[:share]
    if len(sequences) < 2:
        raise SystemExit("too little text: give more, or a smaller --sequence-tokens")
    return sequences


def _strings(path: Path) -> Iterator[str]:
    """The text of a file; of JSON lines every string, however deep."""
    data = path.read_bytes()
    text = (gzip.decompress(data) if path.suffix == ".gz" else data).decode()
    if ".jsonl" not in path.suffixes:
        yield text
        return
    for line in text.splitlines():
        yield "\n".join(_strings_in(json.loads(line)))


def _strings_in(value: object) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict | list):
        for inner in value.values() if isinstance(value, dict) else value:
            yield from _strings_in(inner)


def _print(
    rows: list[dict[str, float | str]], sequences: list[list[int]], options: argparse.Namespace
) -> None:
    tokens = sum(map(len, sequences))
    print(f"{platform.processor() or platform.machine()}, torch {torch.__version__}", end=", ")
    print(f"{len(sequences)} sequences of {options.sequence_tokens}, {tokens} tokens")
    print("| precision | weights | perplexity | change | top-1 | KL | newly wrong / right |")
    print("|---|---|---|---|---|---|---|")
    for row in rows:
        print(
            f"| {row['precision']} | {row['weight_mib']:.0f} MiB | {row['perplexity']:.3f} "
            f"| {row['change_percent']:+.2f} ± {row['change_error_percent']:.2f} % "
            f"| {row['top1_percent']:.2f} % | {row['kl_nats']:.5f} "
            f"| {row['newly_wrong_percent']:.2f} / {row['newly_right_percent']:.2f} % |"
        )


def _parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("texts", nargs="+", type=Path, metavar="TEXT")
    parser.add_argument("--model", default="smollm2-135m", help="name or path; default %(default)s")
    parser.add_argument("--tokens", type=int, default=8192, help="of text, at most")
    parser.add_argument("--sequence-tokens", type=int, default=512)
    parser.add_argument("--threads", type=int, default=0, help="0: one per physical core")
    parser.add_argument("--json", type=Path, help="also write the rows to this file")
    return parser.parse_args()


if __name__ == "__main__":
    main()
