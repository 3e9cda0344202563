"""Checks that requests at the same time do not get into each other's way."""

import asyncio
from collections import Counter

from steelyard.lab.verify.answers import Answer
from steelyard.lab.verify.check import check
from steelyard.lab.verify.endpoints import Endpoint
from steelyard.lab.verify.material import COUNTING, SCRIPTS, STORIES, fresh_words
from steelyard.lab.verify.probe import Probe
from steelyard.lab.verify.ties import divergence

__all__ = ["CHECKS"]

_SUBJECTS = (COUNTING, *STORIES, *SCRIPTS[:2], "a b c d e f g a b c d e f g a b c d e f")


@check(
    "concurrency.own-answers",
    "Each of many requests at once gets the answer to its own prompt.",
    "Slots, buffers or connections that are mixed up.",
)
async def _own_answers(probe: Probe) -> None:
    wishes = {endpoint: {"max_tokens": 20, **probe.logprobs(endpoint)} for endpoint in Endpoint}
    cases = [
        (endpoint, subject, is_streamed)
        for at, subject in enumerate(_SUBJECTS)
        for endpoint in probe.offer.endpoints
        for is_streamed in (at % 2 == 0,)
    ]
    alone = [await probe.ask(e, subject, **wishes[e]) for e, subject, _ in cases]
    limit = asyncio.Semaphore(2 * probe.config.concurrency)

    async def one(endpoint: Endpoint, subject: str, is_streamed: bool) -> Answer:
        async with limit:
            ask = probe.stream if is_streamed else probe.ask
            return await ask(endpoint, subject, **wishes[endpoint])

    together = await asyncio.gather(*(one(*case) for case in cases))
    for mine, again in zip(alone, together, strict=True):
        found = divergence(mine.choice, again.choice, probe.config.tie_nats)
        if found is None:
            continue
        owners = [a for a in alone if a is not mine and a.text == again.text != mine.text]
        if owners:
            probe.claim(False, "a request got the answer to another one", mine, again, owners[0])
        else:
            probe.agree(mine, again, "alone and among others")


@check(
    "concurrency.ids",
    "No two answers have the same id.",
    "Ids are what logs and clients tell answers apart by.",
)
async def _ids(probe: Probe) -> None:
    asked = [probe.ask(probe.main, f"Number {i}", max_tokens=1) for i in range(12)]
    answers = await asyncio.gather(*asked)
    again = [await probe.ask(probe.main, "Number 1", max_tokens=1) for _ in range(2)]
    repeated = [n for n, count in Counter(a.id for a in [*answers, *again]).items() if count > 1]
    probe.claim(not repeated, f"ids come more than once: {repeated[:3]}", *answers[:2])


@check(
    "concurrency.usage",
    "Requests at once are counted each for itself.",
    "Is usage taken from a batch instead of a request?",
)
async def _usage(probe: Probe) -> None:
    subjects = [fresh_words(5 + 9 * i) for i in range(probe.config.concurrency)]
    asked = [probe.ask(probe.main, s, max_tokens=3 + i) for i, s in enumerate(subjects)]
    together = await asyncio.gather(*asked)
    for at, (subject, answer) in enumerate(zip(subjects, together, strict=True)):
        alone = await probe.ask(probe.main, subject, max_tokens=1)
        counts = alone.counts.prompt_tokens, answer.counts.prompt_tokens
        problem = f"prompt_tokens are {counts[0]} alone and {counts[1]} among others"
        probe.claim(counts[0] == counts[1], problem, alone, answer)
        produced = answer.counts.completion_tokens
        is_right = produced == 3 + at or answer.finish_reason == "stop"
        probe.claim(is_right, f"{produced} tokens came, {3 + at} were asked", answer)


CHECKS = (_own_answers, _ids, _usage)
