"""Checks of stop strings and stop tokens.

Each takes its stop from what the model says anyway: a first answer without stops is the truth the
others are held against.
"""

import re
from collections.abc import Sequence

from steelyard.lab.verify.answers import Answer
from steelyard.lab.verify.check import check, check_both
from steelyard.lab.verify.endpoints import Endpoint
from steelyard.lab.verify.material import COUNTING
from steelyard.lab.verify.probe import Probe

__all__ = ["CHECKS"]

_TOKENS = 32


@check_both(
    "stops.one",
    "A stop string ends the text just before it, with finish_reason stop.",
    "The text ends at the first occurrence; the stop string is not shown.",
)
async def _one(probe: Probe, endpoint: Endpoint) -> None:
    truth = await _truth(probe, endpoint)
    for stop in _stops(probe, truth, 2):
        await _ends_before(probe, endpoint, truth, [stop], stop)


@check_both(
    "stops.borders",
    "A stop string is found across the borders of tokens, and inside one.",
    "Is the text searched, or only token by token?",
)
async def _borders(probe: Probe, endpoint: Endpoint) -> None:
    truth = await _truth(probe, endpoint)
    text = truth.text
    third = len(text) // 3
    # Whatever the tokens are, pieces of several lengths cannot all begin and end with one.
    found = [text[third : third + length] for length in (2, 3, 5, 8)]
    for piece in dict.fromkeys(found):
        if _is_plain(piece):
            await _ends_before(probe, endpoint, truth, [piece], piece)


@check_both(
    "stops.earliest",
    "Of several stop strings, the one that comes first ends the text.",
    "The order in the list must not matter.",
)
async def _earliest(probe: Probe, endpoint: Endpoint) -> None:
    truth = await _truth(probe, endpoint)
    early, late = _stops(probe, truth, 2)
    first = min(early, late, key=truth.text.index)
    await _ends_before(probe, endpoint, truth, [late, early], first)
    await _ends_before(probe, endpoint, truth, ["\u0001never", early, late], first)


@check_both(
    "stops.held-back",
    "Text that only begins like a stop string is delivered in the end.",
    "What is held back for a possible stop must be let go when the text ends.",
)
async def _held_back(probe: Probe, endpoint: Endpoint) -> None:
    truth = await _truth(probe, endpoint)
    stops = [truth.text[-4:] + "\u0001never", truth.text[-1:] + "\u0001never"]
    whole = await probe.ask(endpoint, COUNTING, max_tokens=_TOKENS, stop=stops)
    streamed = await probe.stream(endpoint, COUNTING, max_tokens=_TOKENS, stop=stops)
    for answer in (whole, streamed):
        if _is_from(truth, answer):
            is_whole = answer.text == truth.text
            problem = f"the text ends {answer.text[-12:]!r}, not {truth.text[-12:]!r}"
            probe.claim(is_whole, problem, truth, answer)
            reason = answer.finish_reason
            is_same = reason == truth.finish_reason
            probe.claim(is_same, f"finish_reason is {reason!r} though nothing stopped", answer)


@check_both(
    "stops.streamed",
    "Nothing of a stop string is streamed.",
    "Hold text back as long as it may be the beginning of a stop string.",
)
async def _streamed(probe: Probe, endpoint: Endpoint) -> None:
    truth = await _truth(probe, endpoint)
    text = truth.text
    middle = len(text) // 2
    stop = text[middle : middle + 9]
    streamed = await probe.stream(endpoint, COUNTING, max_tokens=_TOKENS, stop=[stop])
    wanted = text[: text.index(stop)]
    is_right = streamed.text == wanted
    problem = f"the stream says {streamed.text[-16:]!r} at the end, not {wanted[-16:]!r}"
    probe.claim(is_right, problem, truth, streamed)
    reason = streamed.finish_reason
    probe.claim(reason == "stop", f"finish_reason is {reason!r}", streamed)


@check_both(
    "stops.usage",
    "A stopped answer counts the tokens up to the stop, not those it would have had.",
    "Is generation ended, or only the text cut?",
)
async def _usage(probe: Probe, endpoint: Endpoint) -> None:
    truth = await _truth(probe, endpoint)
    stop = _stops(probe, truth, 1)[0]
    stopped = await probe.ask(endpoint, COUNTING, max_tokens=_TOKENS, stop=stop)
    counts = stopped.counts.completion_tokens, truth.counts.completion_tokens
    shown = len(stopped.text) / max(len(truth.text), 1)
    is_less = 0 < counts[0] < counts[1]
    problem = f"{counts[0]} of {counts[1]} tokens are counted for {shown:.0%} of the text"
    probe.claim(is_less, problem, truth, stopped)


@check(
    "stops.shown",
    "include_stop_str_in_output shows the stop string.",
    "vLLM's extra.",
)
async def _shown(probe: Probe) -> None:
    endpoint = probe.main
    truth = await _truth(probe, endpoint)
    stop = _stops(probe, truth, 1)[0]
    wishes = {"max_tokens": _TOKENS, "stop": [stop], "include_stop_str_in_output": True}
    answer = await probe.ask(endpoint, COUNTING, **wishes)
    is_known = await probe.knows(endpoint, "include_stop_str_in_output")
    wanted = truth.text[: truth.text.index(stop)] + stop
    problem = f"the text ends {answer.text[-16:]!r}, not {wanted[-16:]!r}"
    probe.effect(answer.text == wanted, problem, is_known, truth, answer)


@check(
    "stops.token-ids",
    "stop_token_ids end the text at that token.",
    "vLLM's extra.",
)
async def _token_ids(probe: Probe) -> None:
    endpoint = probe.main
    truth = await _truth(probe, endpoint)
    tokens = [token.text for token in (await _with_tokens(probe, endpoint)).choice.tokens or ()]
    late = next((text for text in tokens[6:] if tokens.index(text) > 3), None)
    target = None if late is None else await probe.tokenizer.single(late)
    if target is None:
        probe.skip("no token of the answer is known by its id")
    known = await probe.knows(endpoint, "stop_token_ids")
    wishes = {"max_tokens": _TOKENS, "stop_token_ids": [target]}
    answer = await probe.ask(endpoint, COUNTING, **wishes)
    is_shorter = len(answer.text) < len(truth.text) and truth.text.startswith(answer.text)
    problem = f"the text did not end at token {target}: {answer.text[-20:]!r}"
    probe.effect(is_shorter, problem, known, truth, answer)
    reason = answer.finish_reason
    probe.effect(reason == "stop", f"finish_reason is {reason!r}", known, answer)


async def _truth(probe: Probe, endpoint: Endpoint) -> Answer:
    """What the model says without stops."""
    truth = await probe.ask(endpoint, COUNTING, max_tokens=_TOKENS)
    if len(truth.text) < 16 or not truth.choice.content or truth.choice.reasoning:
        probe.skip(f"the model says too little to stop in: {truth.text!r}")
    return truth


async def _with_tokens(probe: Probe, endpoint: Endpoint) -> Answer:
    wishes = probe.logprobs(endpoint)
    return await probe.ask(endpoint, COUNTING, max_tokens=_TOKENS, **wishes)


def _stops(probe: Probe, truth: Answer, count: int) -> list[str]:
    """Different pieces of the text that are not at its very beginning, in order."""
    pieces = [match[0] for match in re.finditer(r"\w{1,6}", truth.text)]
    found = [p for p in dict.fromkeys(pieces) if truth.text.index(p) > 3 and _is_plain(p)]
    chosen = found[len(found) // 3 :][:count]
    if len(chosen) < count:
        probe.skip(f"the model repeats itself too much to stop in: {truth.text[:40]!r}")
    return chosen


async def _ends_before(
    probe: Probe, endpoint: Endpoint, truth: Answer, stops: Sequence[str], first: str
) -> None:
    answer = await probe.ask(endpoint, COUNTING, max_tokens=_TOKENS, stop=list(stops))
    wanted = truth.text[: truth.text.index(first)]
    problem = f"with stop {list(stops)!r} the text is {answer.text[-40:]!r}, not {wanted[-40:]!r}"
    probe.claim(answer.text == wanted, problem, truth, answer)
    reason = answer.finish_reason
    probe.claim(reason == "stop", f"with stop {stops!r} finish_reason is {reason!r}", answer)


def _is_from(truth: Answer, answer: Answer) -> bool:
    """False when the answer took another way early on, which other checks will judge."""
    return answer.text[:8] == truth.text[:8]


def _is_plain(text: str) -> bool:
    """True for text that JSON, blanks and byte fallback leave alone."""
    return bool(text.strip()) and "\ufffd" not in text


CHECKS = (
    *_one,
    *_borders,
    *_earliest,
    *_held_back,
    *_streamed,
    *_usage,
    _shown,
    _token_ids,
)
