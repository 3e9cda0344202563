"""Waits for moments of the monotonic clock, to some tens of microseconds.

Event loops' own timers count whole milliseconds, and may ring early: a request must not leave
before its time, and no later than it has to.
"""

import asyncio
import time
from collections.abc import Callable

from steelyard.lab.mock.precise_timers import PreciseTimers

__all__ = ["Pacer"]


class Pacer:
    """Belongs to one event loop, and to that loop's clock."""

    def __init__(self) -> None:
        self._timers = PreciseTimers()
        self._loop = asyncio.get_running_loop()

    async def until(self, due_s: float) -> None:
        """Return at `due_s` of the monotonic clock, or after one turn of the loop if it passed."""
        if time.monotonic() >= due_s:
            await asyncio.sleep(0)
            return
        rung: asyncio.Future[None] = self._loop.create_future()
        self._timers.at(round(due_s * 1e9), _ring, rung)
        await rung

    def every(self, period_s: float, call: Callable[[float], None]) -> None:
        """Call with the seconds by which each beat is late, until closed; missed beats are left
        out."""
        _Beat(self._timers, round(period_s * 1e9), call).begin()

    def close(self) -> None:
        """Ring no more. Whoever waits, waits for ever. Safe to repeat."""
        self._timers.close()


class _Beat:
    """Repeats itself at fixed times."""

    def __init__(
        self, timers: PreciseTimers, period_ns: int, call: Callable[[float], None]
    ) -> None:
        self._timers = timers
        self._period_ns = period_ns
        self._call = call

    def begin(self) -> None:
        self._timers.at(self._timers.now_ns() + self._period_ns, self._ring, None)

    def _ring(self, _: None, due_ns: int) -> None:
        late_ns = self._timers.now_ns() - due_ns
        self._call(late_ns / 1e9)
        missed = late_ns // self._period_ns
        self._timers.at(due_ns + (missed + 1) * self._period_ns, self._ring, None)


def _ring(rung: "asyncio.Future[None]", _: int) -> None:
    if not rung.done():  # whoever waited may have been cancelled
        rung.set_result(None)
