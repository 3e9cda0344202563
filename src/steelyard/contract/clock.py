"""Time is an argument: all waiting and all deadlines go through a `Clock`.

`RealClock` is the machine's monotonic clock. `VirtualClock` stands still until a test or a
simulation moves it, so hours pass in microseconds and every run is the same.
"""

import asyncio
import heapq
import itertools
import time
from collections.abc import Awaitable
from typing import Protocol, TypeVar

__all__ = ["Clock", "RealClock", "VirtualClock", "within"]

ResultT = TypeVar("ResultT")


class Clock(Protocol):
    """A monotonic clock in seconds; its zero has no meaning."""

    def now(self) -> float:
        """Seconds; never runs backwards."""
        ...

    async def sleep(self, duration_s: float) -> None:
        """Return once `duration_s` has passed; zero or less yields once."""
        ...


class RealClock:
    """The machine's monotonic clock; waits on the running event loop."""

    def now(self) -> float:
        return time.monotonic()

    async def sleep(self, duration_s: float) -> None:
        await asyncio.sleep(max(duration_s, 0.0))


class VirtualClock:
    """A clock that moves only by `advance`; sleepers wake in order of their due times."""

    def __init__(self, start_s: float = 0.0) -> None:
        self._now_s = start_s
        self._sleepers: list[tuple[float, int, asyncio.Future[None]]] = []
        self._order = itertools.count()

    def now(self) -> float:
        return self._now_s

    async def sleep(self, duration_s: float) -> None:
        if duration_s <= 0:
            await asyncio.sleep(0)
            return
        done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        heapq.heappush(self._sleepers, (self._now_s + duration_s, next(self._order), done))
        await done

    @property
    def next_due_s(self) -> float | None:
        """When the earliest sleeper wakes; None when nobody sleeps."""
        self._drop_cancelled()
        return self._sleepers[0][0] if self._sleepers else None

    def jump(self, duration_s: float) -> None:
        """Move the time without waking anyone: for code that only reads `now`."""
        if duration_s < 0:
            raise ValueError("a clock never runs backwards")
        self._now_s += duration_s

    async def advance(self, duration_s: float) -> None:
        """Move the time, letting each sleeper run at its own due time on the way."""
        end_s = self._now_s + duration_s
        await _settle()
        while (due_s := self.next_due_s) is not None and due_s <= end_s:
            self._now_s = max(self._now_s, due_s)
            _, _, done = heapq.heappop(self._sleepers)
            done.set_result(None)
            await _settle()
        self._now_s = max(self._now_s, end_s)

    def _drop_cancelled(self) -> None:
        while self._sleepers and self._sleepers[0][2].done():
            heapq.heappop(self._sleepers)


async def within(clock: Clock, limit_s: float, work: Awaitable[ResultT]) -> ResultT:
    """The result of `work`. Raises `TimeoutError`, and cancels `work`, after `limit_s`."""
    working = asyncio.ensure_future(work)
    timer = asyncio.ensure_future(clock.sleep(limit_s))
    try:
        await asyncio.wait((working, timer), return_when=asyncio.FIRST_COMPLETED)
        if working.done():
            return working.result()
        raise TimeoutError(f"not done after {limit_s:g} s")
    finally:
        working.cancel()
        timer.cancel()
        await asyncio.wait((working, timer))


async def _settle() -> None:
    """Let every task that can run do so; chains of up to 50 hand-overs."""
    for _ in range(50):
        await asyncio.sleep(0)
