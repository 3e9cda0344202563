"""Checks at the limit of what the model can hold."""

from collections.abc import Sequence

from steelyard.lab.verify.answers import Answer
from steelyard.lab.verify.check import check
from steelyard.lab.verify.endpoints import Endpoint
from steelyard.lab.verify.findings import NotOffered
from steelyard.lab.verify.material import long_text
from steelyard.lab.verify.probe import Probe

__all__ = ["CHECKS"]

_ROOM = 8
_MOST_REFUSED_TOKENS = 1_000_000
"""Longer prompts are not even sent."""
_WORDS_ABOUT_LENGTH = ("context", "length", "long", "maximum", "exceed", "too large", "limit")


@check(
    "context.long",
    "A prompt of some thousand tokens is answered, and counted whole.",
    "Is a long prompt cut, or read in pieces that are not put together?",
)
async def _long(probe: Probe) -> None:
    tokens = min(2000, _testable(probe) or 2000) - 2 * _ROOM
    answer = await _ask(probe, await _prompt(probe, tokens), _ROOM)
    _claim_counts(probe, answer, tokens)


@check(
    "context.full",
    "A prompt that just leaves room for the answer is answered.",
    "Off by one at the limit?",
)
async def _full(probe: Probe) -> None:
    limit = _testable(probe)
    if limit is None:
        probe.skip("the server does not say how much the model can hold")
    answer = await _ask(probe, await _prompt(probe, limit - _ROOM), _ROOM)
    _claim_counts(probe, answer, limit - _ROOM)
    probe.note(f"tested with {limit} tokens; the server says {probe.offer.context_tokens}")


@check(
    "context.beyond",
    "A prompt that cannot fit is refused at once, and the error says why.",
    "Refuse it at the door: neither cut it silently nor let the engine fail.",
)
async def _beyond(probe: Probe) -> None:
    context = probe.offer.context_tokens
    if context is None or context > _MOST_REFUSED_TOKENS:
        probe.skip(f"the model holds {context or 'an unknown number of'} tokens")
    prompt = await _prompt(probe, context + 2 * _ROOM)
    exchange = await probe.post(probe.main, prompt, max_tokens=_ROOM)
    if not probe.refused(exchange, "a prompt beyond the context"):
        return
    said = exchange.json()["error"]["message"]
    is_clear = any(word in said.lower() for word in _WORDS_ABOUT_LENGTH)
    probe.claim(is_clear, f"the error does not say what is too long: {said[:120]!r}", exchange)
    probe.note(f"refused after {exchange.elapsed_s:.2f} s")


@check(
    "context.output",
    "An answer that cannot fit is refused, or ends with length at the limit.",
    "prompt plus max_tokens exceed the context, the prompt alone does not.",
)
async def _output(probe: Probe) -> None:
    context = probe.offer.context_tokens
    if context is None or context > probe.config.long_context_tokens:
        probe.skip("the limit is unknown, or too far away to try")
    prompt = await _prompt(probe, context - 2 * _ROOM)
    exchange = await probe.post(probe.main, prompt, max_tokens=context)
    if not exchange.is_ok:
        probe.refused(exchange, "an answer beyond the context")
        return
    answer = await _ask(probe, prompt, context)
    total = answer.counts.total_tokens
    probe.claim(total <= context, f"{total} tokens of {context} were used", answer)
    reason = answer.finish_reason
    is_cut = reason == "length" or total < context
    probe.claim(is_cut, f"finish_reason is {reason!r} at the limit", answer)


def _testable(probe: Probe) -> int | None:
    """Tokens of prompt and answer that may be tried; None when the limit is unknown."""
    context = probe.offer.context_tokens
    return None if context is None else min(context, probe.config.long_context_tokens)


async def _ask(probe: Probe, prompt: str | Sequence[int], max_tokens: int) -> Answer:
    return await probe.ask(probe.main, prompt, max_tokens=max_tokens)


async def _prompt(probe: Probe, tokens: int) -> str | list[int]:
    """A prompt of exactly so many tokens, as text completions count; nearly so for chat."""
    if probe.main is Endpoint.TEXT:
        return await _ids(probe, tokens)
    counts = []
    for words in (10, 110):
        answer = await probe.ask(Endpoint.CHAT, "word" + " word" * (words - 1), max_tokens=1)
        counts.append(answer.counts.prompt_tokens)
    per_word = max((counts[1] - counts[0]) // 100, 1)
    return "word" + " word" * ((tokens - counts[0]) // per_word + 9)


async def _ids(probe: Probe, tokens: int) -> list[int]:
    try:
        some = await probe.tokenizer.encode(long_text(4))
    except NotOffered:
        some = list(range(100, 160))
    return (some * (tokens // len(some) + 1))[:tokens]


def _claim_counts(probe: Probe, answer: Answer, tokens: int) -> None:
    counted = answer.counts.prompt_tokens
    if probe.main is Endpoint.TEXT:
        probe.claim(counted == tokens, f"{tokens} prompt tokens count as {counted}", answer)
    produced = answer.counts.completion_tokens
    is_whole = produced == _ROOM or answer.finish_reason == "stop"
    probe.claim(is_whole, f"{produced} tokens came, {_ROOM} were asked", answer)


CHECKS = (_long, _full, _beyond, _output)
