"""Checks of log-probabilities: their shape in both endpoints, and that they are probabilities."""

import math
from itertools import pairwise

from steelyard.lab.verify.answers import Answer, Token
from steelyard.lab.verify.check import check, check_both
from steelyard.lab.verify.endpoints import Endpoint
from steelyard.lab.verify.material import COUNTING, SCRIPTS, STORIES
from steelyard.lab.verify.probe import Probe

__all__ = ["CHECKS"]

_TOP = 5
_ROUNDING = 1e-3
_VALUE_TOLERANCE_NATS = 0.1
"""Between two computations of one log-probability in bf16."""


@check_both(
    "logprobs.shape",
    "Log-probabilities come in the endpoint's own shape, one entry per token, as many as asked.",
    "Chat has logprobs.content[], text completions four parallel lists.",
)
async def _shape(probe: Probe, endpoint: Endpoint) -> None:
    answer = await _ask(probe, endpoint, COUNTING)
    is_chat = endpoint is Endpoint.CHAT
    problem = f"the shape is that of {'text completions' if is_chat else 'chat completions'}"
    probe.claim(answer.choice.has_chat_logprobs == is_chat, problem, answer)
    tokens = _tokens(answer)
    counts = {len(token.top) for token in tokens}
    # Text completions may add the chosen token to the most likely ones.
    wanted = {_TOP} if is_chat else {_TOP, _TOP + 1}
    probe.claim(counts <= wanted, f"{sorted(counts)} alternatives came, {_TOP} asked", answer)
    if is_chat:
        none = await probe.ask(endpoint, COUNTING, logprobs=True, top_logprobs=0)
        entries = none.choice.tokens or ()
        probe.claim(bool(entries), "with top_logprobs 0, the chosen tokens are missing", none)
        is_bare = not any(token.top for token in entries)
        probe.claim(is_bare, "with top_logprobs 0, alternatives came", none)


@check_both(
    "logprobs.probabilities",
    "Log-probabilities are none above zero, sorted, and their shares sum to at most one.",
    "Are they taken after the softmax, over the whole vocabulary?",
)
async def _probabilities(probe: Probe, endpoint: Endpoint) -> None:
    for subject in (COUNTING, STORIES[0]):
        answer = await _ask(probe, endpoint, subject)
        for at, token in enumerate(_tokens(answer)):
            values = [value for _, value in token.top]
            everything = [*values, *([] if token.logprob is None else [token.logprob])]
            is_log = all(math.isfinite(v) and v <= _ROUNDING for v in everything)
            probe.claim(is_log, f"token {at}: values {everything[:6]}", answer)
            total = sum(math.exp(min(v, 1.0)) for v in values)
            probe.claim(total <= 1 + _ROUNDING, f"token {at}: shares sum to {total:.4f}", answer)
            falls = all(a >= b - _ROUNDING for a, b in pairwise(values[:_TOP]))
            is_sorted = falls or endpoint is Endpoint.TEXT  # there they are an object: unordered
            probe.claim(is_sorted, f"token {at}: the list is not sorted: {values}", answer)
            if probe.problems:
                return


@check_both(
    "logprobs.greedy",
    "The greedy token is the most likely one, with the same value in both places.",
    "Are the values those of this position, or shifted by one?",
)
async def _greedy(probe: Probe, endpoint: Endpoint) -> None:
    for subject in (COUNTING, STORIES[1]):
        answer = await _ask(probe, endpoint, subject, max_tokens=24)
        for at, token in enumerate(_tokens(answer)):
            best = max((value for _, value in token.top), default=0.0)
            own = -math.inf if token.logprob is None else token.logprob
            problem = f"token {at} ({token.text!r}) has {own:.4f}, the most likely {best:.4f}"
            if not probe.claim(abs(own - best) <= _ROUNDING, problem, answer):
                return


@check_both(
    "logprobs.text",
    "The tokens put together are the text.",
    "Are tokens left out whose bytes are no whole character?",
)
async def _text(probe: Probe, endpoint: Endpoint) -> None:
    for subject in (COUNTING, STORIES[0], *SCRIPTS[:2]):
        answer = await _ask(probe, endpoint, subject, max_tokens=20)
        if answer.finish_reason == "stop":
            continue  # the end token may have an entry, and no text
        if answer.choice.reasoning:
            probe.skip("thoughts are told apart from the text")
        tokens = _tokens(answer)
        problem = f"the tokens are {_joined(tokens)[:40]!r}, the text {answer.text[:40]!r}"
        probe.claim(_are_text(tokens, answer.text), problem, answer)
        _claim_offsets(probe, answer)


@check_both(
    "logprobs.streamed",
    "A stream carries the log-probabilities of the whole answer, token by token.",
    "Is a chunk's list that of its own tokens? Are those of held-back text lost?",
)
async def _streamed(probe: Probe, endpoint: Endpoint) -> None:
    whole = await _ask(probe, endpoint, COUNTING, max_tokens=20)
    streamed = await probe.stream(endpoint, COUNTING, max_tokens=20, **endpoint.logprobs(_TOP))
    left, right = _tokens(whole), _tokens(streamed)
    problem = f"{len(left)} entries whole, {len(right)} streamed"
    if probe.claim(len(left) == len(right), problem, whole, streamed):
        apart = _apart(left, right)
        problem = f"values are up to {apart:.3f} nats apart"
        probe.claim(apart <= _VALUE_TOLERANCE_NATS, problem, whole, streamed)


@check(
    "logprobs.repeated",
    "The same request has the same log-probabilities.",
    "Does the value depend on the cache, or on what else is in the batch?",
)
async def _repeated(probe: Probe) -> None:
    first = await _ask(probe, probe.main, COUNTING)
    for _ in range(2):
        other = await _ask(probe, probe.main, COUNTING)
        apart = _apart(_tokens(first), _tokens(other))
        problem = f"values are up to {apart:.3f} nats apart"
        probe.claim(apart <= _VALUE_TOLERANCE_NATS, problem, first, other)


async def _ask(probe: Probe, endpoint: Endpoint, subject: str, **wishes: int) -> Answer:
    probe.need(endpoint)
    if endpoint not in probe.offer.logprobs:
        probe.skip(f"{endpoint.path} gives no log-probabilities")
    return await probe.ask(endpoint, subject, **wishes, **endpoint.logprobs(_TOP))


def _tokens(answer: Answer) -> tuple[Token, ...]:
    return answer.choice.tokens or ()


def _are_text(tokens: tuple[Token, ...], text: str) -> bool:
    """True when the tokens put together are `text`, as far as they can tell."""
    joined = _joined(tokens)
    if all(token.raw is not None for token in tokens):
        # Only a character that max_tokens cut may be shown in another way, or not at all.
        return joined.rstrip("\ufffd") == text.rstrip("\ufffd")
    # Without bytes, a token that is no whole character has no text of its own.
    whole = joined.partition("\ufffd")[0]
    return joined == text or ("\ufffd" in joined and text.startswith(whole))


def _joined(tokens: tuple[Token, ...]) -> str:
    if all(token.raw is not None for token in tokens):
        return b"".join(token.raw or b"" for token in tokens).decode("utf-8", "replace")
    return "".join(token.text for token in tokens)


def _claim_offsets(probe: Probe, answer: Answer) -> None:
    """Each token begins where the one before it ended."""
    tokens = _tokens(answer)
    is_partial = any("\ufffd" in token.text for token in tokens)
    if is_partial or not tokens or any(token.offset is None for token in tokens):
        return
    for one, following in pairwise(tokens):
        moved = (following.offset or 0) - (one.offset or 0)
        problem = f"text_offset moves by {moved} over {one.text!r}"
        if not probe.claim(moved == len(one.text), problem, answer):
            return


def _apart(left: tuple[Token, ...], right: tuple[Token, ...]) -> float:
    """The largest difference of the chosen tokens' values, as far as the tokens are the same."""
    largest = 0.0
    for one, other in zip(left, right, strict=False):
        if one.text != other.text or one.logprob is None or other.logprob is None:
            break
        largest = max(largest, abs(one.logprob - other.logprob))
    return largest


CHECKS = (
    *_shape,
    *_probabilities,
    *_greedy,
    *_text,
    *_streamed,
    _repeated,
)
