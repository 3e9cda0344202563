"""Checks that a greedy answer depends on its prompt alone: not on caches, neighbours or time.

Where two tokens are tied (`ties`), either answer is right; ties are noted, not counted against the
server.
"""

import asyncio

from steelyard.lab.verify.check import check, check_both
from steelyard.lab.verify.endpoints import Endpoint
from steelyard.lab.verify.material import COUNTING, STORIES, fresh_words, long_text
from steelyard.lab.verify.probe import Probe

__all__ = ["CHECKS"]

_REPEATS = 4


@check_both(
    "determinism.repeated",
    "The same greedy request, one after the other, has the same answer.",
    "Uninitialised memory, a wrong default temperature, or state that one request leaves behind?",
)
async def _repeated(probe: Probe, endpoint: Endpoint) -> None:
    for subject in (COUNTING, STORIES[0]):
        wishes = {"max_tokens": 32, **probe.logprobs(endpoint)}
        first, *others = [await probe.ask(endpoint, subject, **wishes) for _ in range(_REPEATS)]
        for other in others:
            probe.agree(first, other, "repeated answers")


@check(
    "determinism.cached",
    "An answer is the same whether its prompt was cached or not.",
    "Are cached blocks keyed by everything before them? Is the last block recomputed rightly?",
)
async def _cached(probe: Probe) -> None:
    endpoint = probe.main
    for subject in (fresh_words(12) + " " + long_text(24) + COUNTING, fresh_words(90)):
        wishes = {"max_tokens": 24, **probe.logprobs(endpoint)}
        cold = await probe.ask(endpoint, subject, **wishes)
        for _ in range(2):
            probe.agree(cold, await probe.ask(endpoint, subject, **wishes), "cold and cached")


@check(
    "determinism.prefix",
    "A cached prefix serves a longer prompt as if it had been computed for it.",
    "A prefix of another prompt is found in the cache: does it end where the prompts part?",
)
async def _prefix(probe: Probe) -> None:
    endpoint = probe.main
    wishes = {"max_tokens": 16, **probe.logprobs(endpoint)}
    start = fresh_words(70)
    await probe.ask(endpoint, f"{start} one two three {COUNTING}", **wishes)
    subject = f"{start} four five six {COUNTING}"
    warm = await probe.ask(endpoint, subject, **wishes)
    again = await probe.ask(endpoint, subject, **wishes)
    probe.agree(warm, again, "partly and wholly cached")


@check_both(
    "determinism.at-once",
    "The same greedy request, many times at once, has the same answer each time.",
    "Does a request see its neighbours' memory in the batch?",
)
async def _at_once(probe: Probe, endpoint: Endpoint) -> None:
    for subject in (COUNTING, STORIES[2]):
        wishes = {"max_tokens": 32, **probe.logprobs(endpoint)}
        alone = await probe.ask(endpoint, subject, **wishes)
        asked = [probe.ask(endpoint, subject, **wishes) for _ in range(probe.config.concurrency)]
        for one in await asyncio.gather(*asked):
            probe.agree(alone, one, "alone and at once")


CHECKS = (*_repeated, _cached, _prefix, *_at_once)
