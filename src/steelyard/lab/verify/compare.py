"""Compares two servers that should say the same: same prompts, token by token.

Greedy answers of both are laid side by side. Where they part, the gap between the two tokens'
log-probabilities says whether the choice was clear (`ties`). Answers that part once may part for
good, and hide later differences; so, where both sides take token ids, the right server is put back
on the left one's path after each difference and asked to go on.
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, replace

import msgspec

from steelyard.lab.verify.answers import Answer, Choice
from steelyard.lab.verify.check import Check, Claim
from steelyard.lab.verify.endpoints import Endpoint, Subject
from steelyard.lab.verify.findings import NotOffered
from steelyard.lab.verify.material import COUNTING, HELLO, SCRIPTS, STORIES, long_text
from steelyard.lab.verify.offer import Offer
from steelyard.lab.verify.probe import Probe
from steelyard.lab.verify.target import Target, VerifyConfig
from steelyard.lab.verify.ties import Divergence, common_tokens, divergence

__all__ = ["COMPARE_CHECKS", "Comparison", "Difference", "PairCheck", "PromptComparison"]

_TOKENS = 48
_TOP = 5
_MOST_DIFFERENCES = 16
"""Per prompt; then the servers are different enough."""


class Difference(msgspec.Struct, frozen=True):
    """One place where the servers choose different tokens after the same text."""

    position: int
    left: str
    right: str
    gap_nats: float | None
    """How clear the choice was, for the side to which it was clearer. None: not told."""
    is_tie: bool


class PromptComparison(msgspec.Struct, frozen=True, kw_only=True):
    """Two answers to one prompt."""

    check: str
    left_tokens: int
    right_tokens: int
    common_tokens: int
    """Equal tokens at the beginning. Zero where tokens are not told."""
    differences: tuple[Difference, ...]
    """The first one, and those after it as far as they could be followed."""
    positions: int
    """Places at which both sides chose after the same text."""
    mean_logprob_change_nats: float | None
    """Mean absolute difference of the log-probabilities of equal tokens. None: not told."""


@dataclass(slots=True)
class Comparison:
    """What was found so far. Filled by the checks."""

    prompts: list[PromptComparison]


@dataclass(frozen=True, slots=True)
class PairCheck(Claim):
    """A claim about two servers."""

    run: Callable[[Probe, Probe, Comparison], Awaitable[None]]
    """Left server, right server, and what is known of them."""

    def bind(self, target: Target, offer: Offer, config: VerifyConfig, into: Comparison) -> Check:
        """The check of a left server against this right one."""

        async def run(left: Probe) -> None:
            right = Probe(target, offer, config)
            try:
                await self.run(left, right, into)
            finally:
                left.take_over(right)

        return Check(self.name, self.proves, self.hint, run)


_CHAT, _TEXT = Endpoint.CHAT, Endpoint.TEXT
_CASES: tuple[tuple[str, Endpoint, Subject], ...] = (
    ("counting", _TEXT, COUNTING),
    ("emoji", _TEXT, SCRIPTS[0]),
    ("accents", _TEXT, SCRIPTS[1]),
    ("long", _TEXT, long_text(40) + COUNTING),
    *((f"story-{at}", _TEXT, story) for at, story in enumerate(STORIES, 1)),
    ("hello", _CHAT, HELLO),
    ("question", _CHAT, "What is 2+2? Answer with one number."),
    ("fox", _CHAT, "Write a story about a fox."),
    (
        "turns",
        _CHAT,
        [
            {"role": "system", "content": "You are a gardener. Answer briefly."},
            {"role": "user", "content": "When should I plant tulips?"},
            {"role": "assistant", "content": "In autumn."},
            {"role": "user", "content": "And tomatoes?"},
        ],
    ),
)


def _prompt_check(name: str, endpoint: Endpoint, subject: Subject) -> PairCheck:
    full_name = f"compare.{name}.{endpoint.value}"

    async def run(left: Probe, right: Probe, into: Comparison) -> None:
        compared = await _compare(full_name, left, right, endpoint, subject)
        into.prompts.append(compared)
        for one in compared.differences:
            gap = "unknown" if one.gap_nats is None else f"{one.gap_nats:.3f} nats"
            text = f"at {one.position}: {one.left!r} against {one.right!r}, gap {gap}"
            if one.is_tie:
                left.note(f"a tie {text}")
            else:
                left.claim(False, f"the servers part {text}")
        if compared.positions:
            left.note(_agreement(compared))

    return PairCheck(
        full_name,
        "Both servers say the same, token by token, up to ties.",
        "Same weights and precision? Same tokens in the prompt? See the gap: rounding explains "
        "small ones only.",
        run,
    )


async def _count_prompts(left: Probe, right: Probe, into: Comparison) -> None:
    """Equal prompts first: a different template explains every other difference."""
    for name, endpoint, subject in _CASES:
        if not _both_offer(left, right, endpoint):
            continue
        answers = await _ask_both(left, right, endpoint, subject, 1)
        counts = [answer.counts.prompt_tokens for answer in answers]
        problem = f"{name}: {counts[0]} prompt tokens against {counts[1]}"
        left.claim(counts[0] == counts[1], problem, *answers)


async def _compare(
    name: str, left: Probe, right: Probe, endpoint: Endpoint, subject: Subject
) -> PromptComparison:
    if not _both_offer(left, right, endpoint):
        raise NotOffered(f"not both have {endpoint.path}")
    answers = await _ask_both(left, right, endpoint, subject, _TOKENS)
    mine, other = answers[0].choice, answers[1].choice
    first = divergence(mine, other, left.config.tie_nats)
    found = [] if first is None else [first]
    common = common_tokens(mine, other)
    positions = min(len(mine.tokens or ()), len(other.tokens or ()), common + 1)
    if first is not None and endpoint is _TEXT and isinstance(subject, str):
        more, followed = await _follow(left, right, subject, mine, first.position + 1)
        found += more
        positions += followed
    return PromptComparison(
        check=name,
        left_tokens=len(mine.tokens or ()),
        right_tokens=len(other.tokens or ()),
        common_tokens=common,
        differences=tuple(map(_difference, found)),
        positions=positions,
        mean_logprob_change_nats=_mean_change(mine, other, common),
    )


async def _ask_both(
    left: Probe, right: Probe, endpoint: Endpoint, subject: Subject, max_tokens: int
) -> list[Answer]:
    wishes = {}
    if endpoint in left.offer.logprobs & right.offer.logprobs:
        wishes = endpoint.logprobs(_TOP)
    asked = [p.ask(endpoint, subject, max_tokens=max_tokens, **wishes) for p in (left, right)]
    return list(await asyncio.gather(*asked))


async def _follow(
    left: Probe, right: Probe, subject: str, mine: Choice, start: int
) -> tuple[list[Divergence], int]:
    """Differences behind the first one, and how many more positions were compared."""
    tokens = mine.tokens or ()
    try:
        prompt = await left.tokenizer.encode(subject)
        if prompt != await right.tokenizer.encode(subject):
            return [], 0
        ids = await _ids(left, mine)
    except NotOffered:
        return [], 0
    found: list[Divergence] = []
    position = start
    wishes = right.logprobs(_TEXT, _TOP)
    while ids and wishes and position < len(tokens) and len(found) < _MOST_DIFFERENCES:
        path = [*prompt, *ids[:position]]
        answer = await right.ask(_TEXT, path, max_tokens=len(tokens) - position, **wishes)
        rest = Choice(index=0, content=None, finish_reason=None, tokens=tokens[position:])
        others = Choice(index=0, content=None, finish_reason=None, tokens=answer.choice.tokens)
        parted = divergence(rest, others, left.config.tie_nats)
        if parted is None:
            return found, len(tokens) - start
        found.append(replace(parted, position=position + parted.position))
        position += parted.position + 1
    return found, position - start


async def _ids(left: Probe, mine: Choice) -> Sequence[int]:
    """Ids of the answer's tokens; empty when they cannot be known for certain."""
    tokens = mine.tokens or ()
    if mine.token_ids is not None and len(mine.token_ids) == len(tokens):
        return mine.token_ids
    known = [token.id for token in tokens if token.id is not None]
    if len(known) == len(tokens):
        return known
    ids = [await left.tokenizer.single(token.text) for token in tokens]
    return [] if None in ids else [token_id for token_id in ids if token_id is not None]


def _both_offer(left: Probe, right: Probe, endpoint: Endpoint) -> bool:
    return all(endpoint in probe.offer.endpoints for probe in (left, right))


def _difference(found: Divergence) -> Difference:
    gaps = [gap for gap in (found.left_gap_nats, found.right_gap_nats) if gap is not None]
    gap = round(max(gaps), 4) if gaps else None
    return Difference(found.position, found.left, found.right, gap, found.is_tie)


def _mean_change(left: Choice, right: Choice, common: int) -> float | None:
    pairs = zip((left.tokens or ())[:common], (right.tokens or ())[:common], strict=True)
    changes = [
        abs(one.logprob - other.logprob)
        for one, other in pairs
        if one.logprob is not None and other.logprob is not None
    ]
    return round(sum(changes) / len(changes), 5) if changes else None


def _agreement(compared: PromptComparison) -> str:
    same = compared.positions - len(compared.differences)
    text = f"{same} of {compared.positions} choices agree"
    change = compared.mean_logprob_change_nats
    return text if change is None else f"{text}, log-probabilities {change:.4f} nats apart"


COMPARE_CHECKS = (
    PairCheck(
        "compare.prompts",
        "Both servers make the same number of tokens of the same prompt.",
        "Compare tokenizers, special tokens and chat templates first.",
        _count_prompts,
    ),
    *(_prompt_check(*case) for case in _CASES),
)
