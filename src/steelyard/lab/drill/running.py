"""Runs the same streams twice: undisturbed, and while something happens to the service."""

import asyncio
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

import aiohttp

from steelyard.contract.errors import EngineFailed
from steelyard.lab.drill.report import DrillReport
from steelyard.lab.drill.streams import DrillStream, begin_streams

__all__ = ["Drill", "run_drill"]

_LOOK_S = 0.01


@dataclass(frozen=True, slots=True)
class Drill:
    """How much runs while it happens."""

    url: str
    model: str
    streams: int
    tokens: int


async def run_drill(
    drill: Drill, happen: Callable[[], Awaitable[None]], tell: Callable[[str], None]
) -> DrillReport:
    """`happen` is awaited while all streams run; `tell` hears what is going on.

    Raises `EngineFailed` when the service does not even serve the streams undisturbed.
    """
    prompts = [f"Story {number}: once upon a time" for number in range(drill.streams)]
    connector = aiohttp.TCPConnector(limit=0)
    async with aiohttp.ClientSession(connector=connector) as session:

        def begin() -> "list[asyncio.Task[DrillStream]]":
            return begin_streams(
                session, drill.url, prompts, model=drill.model, max_tokens=drill.tokens
            )

        undisturbed = await asyncio.gather(*begin())
        failed = [stream for stream in undisturbed if stream.has_failed]
        if failed:
            raise EngineFailed(f"undisturbed, a stream failed already: {failed[0].error}")
        tell(f"{drill.streams} streams of {drill.tokens} tokens, undisturbed")
        tasks = begin()
        await _until_streaming(tasks, sum(_durations_s(undisturbed)) / len(undisturbed))
        at_s = time.monotonic()
        await happen()
        streams = await asyncio.gather(*tasks)
        tell("all streams have ended")
        return DrillReport.of(streams, undisturbed, at_s)


def _durations_s(streams: list[DrillStream]) -> list[float]:
    return [stream.times_s[-1] - stream.times_s[0] for stream in streams]


async def _until_streaming(tasks: "list[asyncio.Task[DrillStream]]", duration_s: float) -> None:
    """Wait for about a third of the time that the streams need."""
    pause_s = duration_s / 3
    while pause_s > 0 and not any(task.done() for task in tasks):
        await asyncio.sleep(min(_LOOK_S, pause_s))
        pause_s -= _LOOK_S
