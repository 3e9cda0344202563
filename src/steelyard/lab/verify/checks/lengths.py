"""Checks of how long answers are, and why they end."""

import re

from steelyard.lab.verify.answers import Answer
from steelyard.lab.verify.check import check, check_both
from steelyard.lab.verify.endpoints import Endpoint, Subject
from steelyard.lab.verify.material import COUNTING
from steelyard.lab.verify.probe import Probe

__all__ = ["CHECKS"]

_SPECIAL = re.compile(r"<\|[^|>]{1,30}\|>|</?s>|<end_of_turn>|<｜[^｜>]{1,40}｜>")
_PATIENCE_TOKENS = 160
_FINITE: tuple[Subject, ...] = (
    "What is 2+2? Answer with one number.",
    "Say hello.",
    "Reply with the single word: yes",
)
"""Prompts that most models answer in a few words."""


@check_both(
    "lengths.max-tokens",
    "max_tokens is kept to the token, with finish_reason length.",
    "Off by one? Are tokens counted before or after the limit?",
)
async def _max_tokens(probe: Probe, endpoint: Endpoint) -> None:
    limits = (1, 2, 9)
    answers = [await probe.ask(endpoint, COUNTING, max_tokens=limit) for limit in limits]
    most = max(answer.counts.completion_tokens for answer in answers)
    for limit, answer in zip(limits, answers, strict=True):
        count, reason = answer.counts.completion_tokens, answer.finish_reason
        if reason == "stop" and count == most <= limit:
            continue  # it ended by itself: more room would change nothing
        probe.claim(count == limit, f"{count} tokens came, {limit} were asked", answer)
        problem = f"finish_reason is {reason!r} after {count} tokens of {limit}"
        probe.claim(reason == "length", problem, answer)
    texts = [answer.text for answer in answers]
    is_growing = texts[2].startswith(texts[1][:-1]) and len(texts[2]) >= len(texts[0])
    probe.claim(is_growing, f"1, 2 and 9 tokens say {texts}", *answers)


@check(
    "lengths.natural-end",
    "An answer that ends by itself says stop, and shows no special tokens.",
    "Is the end token taken out of the text? Is it one of the model's end tokens?",
)
async def _natural_end(probe: Probe) -> None:
    probe.need(Endpoint.CHAT)
    _, answer = await _ending(probe)
    count = answer.counts.completion_tokens
    probe.claim(count < _PATIENCE_TOKENS, f"it ends after {count} tokens, the limit", answer)
    found = _SPECIAL.findall(answer.text)
    probe.claim(not found, f"the text holds special tokens: {found}", answer)


@check(
    "lengths.ignore-eos",
    "ignore_eos goes on after the model's end token.",
    "vLLM's extra; benchmarks need it.",
)
async def _ignore_eos(probe: Probe) -> None:
    probe.need(Endpoint.CHAT)
    subject, ended = await _ending(probe)
    limit = ended.counts.completion_tokens + 12
    wishes = {"max_tokens": limit, "ignore_eos": True}
    answer = await probe.ask(Endpoint.CHAT, subject, **wishes)
    is_known = await probe.knows(Endpoint.CHAT, "ignore_eos")
    count = answer.counts.completion_tokens
    problem = f"{count} tokens came, {limit} were asked"
    probe.effect(count == limit, problem, is_known, ended, answer)


@check(
    "lengths.min-tokens",
    "min_tokens keeps an answer from ending earlier.",
    "vLLM's extra. End tokens must be impossible until then.",
)
async def _min_tokens(probe: Probe) -> None:
    probe.need(Endpoint.CHAT)
    subject, ended = await _ending(probe)
    least = ended.counts.completion_tokens + 6
    wishes = {"max_tokens": least + 20, "min_tokens": least}
    answer = await probe.ask(Endpoint.CHAT, subject, **wishes)
    is_known = await probe.knows(Endpoint.CHAT, "min_tokens")
    count = answer.counts.completion_tokens
    problem = f"{count} tokens came, at least {least} were asked"
    probe.effect(count >= least, problem, is_known, ended, answer)


async def _ending(probe: Probe) -> tuple[Subject, Answer]:
    """A prompt whose answer ends by itself, and the answer."""
    for subject in _FINITE:
        answer = await probe.ask(Endpoint.CHAT, subject, max_tokens=_PATIENCE_TOKENS)
        if answer.finish_reason != "length":
            reason = answer.finish_reason
            probe.claim(reason == "stop", f"finish_reason is {reason!r}", answer)
            return subject, answer
    probe.skip(f"no answer ended within {_PATIENCE_TOKENS} tokens")


CHECKS = (*_max_tokens, _natural_end, _ignore_eos, _min_tokens)
