"""Checks of sampling: that each parameter does what it is for, and that chance is chance."""

import math
from collections import Counter
from collections.abc import Sequence
from typing import Any

from scipy.special import chdtrc

from steelyard.lab.verify.answers import Answer
from steelyard.lab.verify.check import check
from steelyard.lab.verify.material import COUNTING, STORIES
from steelyard.lab.verify.probe import Probe

__all__ = ["CHECKS", "surprise"]

_HOT = {"temperature": 1.2, "max_tokens": 24}
_DRAWS = 96
_BATCHES = (8, 4, 2)
_LEAST_EXPECTED = 4.0
"""Draws expected of a token for it to be compared alone; rarer ones are compared together."""
_IMPOSSIBLE = 1e-6
"""A probability so small that chance is no explanation."""
_REPETITIVE = "la la la la la la la la la la la la la la la la"


@check(
    "sampling.seed",
    "The same seed gives the same answer.",
    "Randomness must be keyed by the seed, not by what else is running.",
)
async def _seed(probe: Probe) -> None:
    first, *others = [await probe.ask(probe.main, STORIES[0], seed=7, **_HOT) for _ in range(3)]
    for other in others:
        is_same = first.text == other.text
        probe.claim(is_same, f"{first.text[:30]!r} and {other.text[:30]!r}", first, other)


@check(
    "sampling.other-seeds",
    "Other seeds give other answers.",
    "Is the seed used at all? Is the temperature?",
)
async def _other_seeds(probe: Probe) -> None:
    answers = [await probe.ask(probe.main, STORIES[0], seed=s, **_HOT) for s in (1, 2, 3, 4)]
    _claim_variety(probe, answers, "4 seeds")


@check(
    "sampling.no-seed",
    "Without a seed, answers vary.",
    "A fixed default seed, or a cache of answers?",
)
async def _no_seed(probe: Probe) -> None:
    answers = [await probe.ask(probe.main, STORIES[1], **_HOT) for _ in range(4)]
    _claim_variety(probe, answers, "4 requests without a seed")


@check(
    "sampling.choices",
    "n gives n choices that vary.",
    "Each choice needs randomness of its own.",
)
async def _choices(probe: Probe) -> None:
    answer = await probe.ask(probe.main, STORIES[2], n=3, **_HOT)
    indices = [choice.index for choice in answer.choices]
    probe.claim(indices == [0, 1, 2], f"choices {indices} came, not [0, 1, 2]", answer)
    texts = {choice.text for choice in answer.choices}
    probe.claim(len(texts) > 1, "all choices say the same at temperature 1.2", answer)


@check(
    "sampling.temperature",
    "A tiny temperature is as good as greedy.",
    "Is the temperature used as it is, and not clamped or replaced by a default?",
)
async def _temperature(probe: Probe) -> None:
    await _as_greedy(probe, {"temperature": 0.001, "seed": 5}, is_known=True)


@check(
    "sampling.top-p",
    "A tiny top_p is as good as greedy, whatever the temperature.",
    "The most likely token always stays, and no other when top_p is below its share.",
)
async def _top_p(probe: Probe) -> None:
    await _as_greedy(probe, {"temperature": 1.5, "top_p": 0.001, "seed": 5}, is_known=True)


@check(
    "sampling.top-k",
    "top_k 1 is greedy, whatever the temperature.",
    "vLLM's extra.",
)
async def _top_k(probe: Probe) -> None:
    is_known = await probe.knows(probe.main, "top_k")
    await _as_greedy(probe, {"temperature": 1.5, "top_k": 1, "seed": 5}, is_known)


@check(
    "sampling.min-p",
    "min_p 1 is greedy, whatever the temperature.",
    "vLLM's extra.",
)
async def _min_p(probe: Probe) -> None:
    is_known = await probe.knows(probe.main, "min_p")
    await _as_greedy(probe, {"temperature": 1.5, "min_p": 1.0, "seed": 5}, is_known)


@check(
    "sampling.distribution",
    "Tokens are drawn as often as their log-probabilities say.",
    "Is a default top_p, top_k or temperature applied though 1 was asked?",
)
async def _distribution(probe: Probe) -> None:
    wishes = probe.logprobs(probe.main, 5)
    if not wishes:
        probe.skip("there are no log-probabilities")
    truth = await probe.ask(probe.main, STORIES[3], max_tokens=1, **wishes)
    tokens = truth.choice.tokens or ()
    if not tokens or not tokens[0].top:
        probe.skip("there are no log-probabilities")
    neutral = {name: value for name, value in _NEUTRAL.items() if await _takes(probe, name, value)}
    drawn: list[str] = []
    batch_size = await _most_choices(probe)
    for batch in range(_DRAWS // batch_size):
        seed = 1000 * batch  # servers derive the choices' own seeds from it, some by counting on
        wishes = {"n": batch_size, "max_tokens": 1, "temperature": 1.0, "seed": seed, **neutral}
        answer = await probe.ask(probe.main, STORIES[3], top_p=1.0, **wishes)
        drawn += [choice.text for choice in answer.choices]
    chance = surprise(dict(tokens[0].top), drawn)
    problem = f"drawn {Counter(drawn).most_common(5)} of {len(drawn)}: chance {chance:.1e}"
    probe.claim(chance >= _IMPOSSIBLE, problem, truth)
    probe.note(f"{len(drawn)} draws, chance of a worse fit {chance:.2g}")


@check(
    "sampling.logit-bias",
    "logit_bias forces a token, and forbids one.",
    "Keys are token ids in decimal; the bias is added before anything else.",
)
async def _logit_bias(probe: Probe) -> None:
    plain = await probe.ask(probe.main, COUNTING, max_tokens=4)
    wanted = await probe.tokenizer.single(" river") or await probe.tokenizer.single("river")
    if wanted is None:
        probe.skip("no token is known by its id")
    forced = await probe.ask(
        probe.main, COUNTING, max_tokens=4, logit_bias={str(wanted): 100}, temperature=1.0, seed=3
    )
    said = forced.text.replace(" ", "")
    problem = f"{said!r} was said, though 'river' had a bias of 100"
    probe.claim(said == "river" * 4, problem, forced)
    ids = (await probe.tokenizer.encode(COUNTING + plain.text[:3]))[-3:]
    bias = {str(token_id): -100 for token_id in ids}
    forbidden = await probe.ask(probe.main, COUNTING, max_tokens=4, logit_bias=bias)
    is_other = forbidden.text != plain.text
    probe.claim(is_other, "forbidding the answer's tokens changes nothing", plain, forbidden)


@check(
    "sampling.frequency-penalty",
    "frequency_penalty breaks repetition.",
    "Are the tokens of the output counted?",
)
async def _frequency_penalty(probe: Probe) -> None:
    await _changes(probe, {"frequency_penalty": 2.0}, is_known=True)


@check(
    "sampling.presence-penalty",
    "presence_penalty changes what is repeated.",
    "Are the tokens of the output counted?",
)
async def _presence_penalty(probe: Probe) -> None:
    await _changes(probe, {"presence_penalty": 2.0}, is_known=True)


@check(
    "sampling.repetition-penalty",
    "repetition_penalty breaks repetition.",
    "vLLM's extra.",
)
async def _repetition_penalty(probe: Probe) -> None:
    is_known = await probe.knows(probe.main, "repetition_penalty")
    await _changes(probe, {"repetition_penalty": 2.0}, is_known)


async def _as_greedy(probe: Probe, wishes: dict[str, Any], is_known: bool) -> None:
    logprobs = probe.logprobs(probe.main)
    for subject in (COUNTING, STORIES[1]):
        greedy = await probe.ask(probe.main, subject, **logprobs)
        answer = await probe.ask(probe.main, subject, **wishes, **logprobs)
        if not is_known:
            probe.effect(greedy.text == answer.text, "no effect", is_known)
        probe.agree(greedy, answer, f"greedy and {wishes}")


async def _changes(probe: Probe, wishes: dict[str, Any], is_known: bool) -> None:
    pairs = []
    for subject in (_REPETITIVE, STORIES[0], STORIES[6]):
        plain = await probe.ask(probe.main, subject, max_tokens=48)
        changed = await probe.ask(probe.main, subject, max_tokens=48, **wishes)
        pairs += [plain, changed]
        if plain.text != changed.text:
            return
    probe.effect(False, f"{wishes} changes nothing", is_known, *pairs[:2])


def _claim_variety(probe: Probe, answers: Sequence[Answer], what: str) -> None:
    texts = {answer.text for answer in answers}
    problem = f"{what} at temperature 1.2 all say {answers[0].text[:40]!r}"
    probe.claim(len(texts) > 1, problem, *answers[:2])


_NEUTRAL = {"top_k": -1, "min_p": 0.0}
"""Extensions that servers may have other defaults for."""


async def _most_choices(probe: Probe) -> int:
    """Choices that one request may ask for."""
    for count in _BATCHES:
        if await _takes(probe, "n", count):
            return count
    return 1


async def _takes(probe: Probe, name: str, value: float) -> bool:
    exchange = await probe.post(probe.main, "Hi", max_tokens=1, **{name: value})
    return exchange.is_ok


def surprise(logprobs: dict[str, float], drawn: Sequence[str]) -> float:
    """The chance of draws that fit no better, by Pearson's chi-squared test.

    `logprobs` holds the most likely tokens; all others are one class. Texts that are no token
    count among the others.
    """
    count = len(drawn)
    classes = {
        t: math.exp(v) for t, v in logprobs.items() if math.exp(v) * count >= _LEAST_EXPECTED
    }
    rest = max(1.0 - sum(classes.values()), 1e-3)
    seen = Counter(text if text in classes else None for text in drawn)
    expected: dict[str | None, float] = {None: rest * count}
    expected |= {text: share * count for text, share in classes.items()}
    statistic = sum((seen[text] - e) ** 2 / e for text, e in expected.items())
    return float(chdtrc(max(len(expected) - 1, 1), statistic))


CHECKS = (
    _seed,
    _other_seeds,
    _no_seed,
    _choices,
    _temperature,
    _top_p,
    _top_k,
    _min_p,
    _distribution,
    _logit_bias,
    _frequency_penalty,
    _presence_penalty,
    _repetition_penalty,
)
