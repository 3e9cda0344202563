"""Real time to some tens of microseconds, beside an event loop whose timers know milliseconds.

One heap of due times and one alarm set to the earliest of them. On Linux the alarm is a timerfd
that the loop watches like a socket; elsewhere a loop timer that rings early and then polls. With
`spin_us` the alarm rings that much earlier and the rest is spent spinning, which hides the time
the kernel needs to wake a process.
"""

import asyncio
import ctypes
import heapq
import itertools
import math
import os
import sys
import time
from collections.abc import Callable
from typing import Any, Protocol

from steelyard.lab.mock.timers import NS_PER_MS, NS_PER_S, Entry

__all__ = ["PreciseTimers"]

_MAX_CALLS_IN_A_ROW = 128
"""So that sockets are read even when more is due than there is time for."""


class PreciseTimers:
    """`Timers` on the running event loop; belongs to its thread."""

    def __init__(self, *, spin_us: int = 0) -> None:
        self._schedule: list[Entry] = []
        self._order = itertools.count()
        self._spin_ns = spin_us * 1000
        self._armed_ns: float = math.inf
        self._is_ringing = False
        self._alarm = _make_alarm(asyncio.get_running_loop(), self._ring)

    def now_ns(self) -> int:
        return time.monotonic_ns()

    def at(self, due_ns: int, call: Callable[[Any, int], None], argument: Any) -> None:
        heapq.heappush(self._schedule, (due_ns, next(self._order), call, argument))
        if due_ns < self._armed_ns and not self._is_ringing:
            self._arm(due_ns)

    def close(self) -> None:
        """Call nobody any more. Safe to repeat."""
        self._schedule.clear()
        self._alarm.close()

    def _ring(self) -> None:
        schedule, spin_ns, now_ns = self._schedule, self._spin_ns, time.monotonic_ns
        self._is_ringing = True
        try:
            for _ in range(_MAX_CALLS_IN_A_ROW):
                if not schedule or schedule[0][0] - spin_ns > now_ns():
                    break
                due_ns, _, call, argument = heapq.heappop(schedule)
                while now_ns() < due_ns:
                    pass  # at most spin_us
                call(argument, due_ns)
        finally:
            self._is_ringing = False
            self._armed_ns = math.inf
            if schedule:
                self._arm(schedule[0][0])

    def _arm(self, due_ns: int) -> None:
        self._armed_ns = due_ns
        self._alarm.set(due_ns - self._spin_ns)


class _Alarm(Protocol):
    def set(self, due_ns: int) -> None:
        """Ring once, at `due_ns` of the monotonic clock, instead of when it was set to before."""

    def close(self) -> None:
        """Never ring again. Safe to repeat."""


def _make_alarm(loop: asyncio.AbstractEventLoop, ring: Callable[[], None]) -> _Alarm:
    if _HAS_TIMERFD:
        return _KernelAlarm(loop, ring)
    return _LoopAlarm(loop, ring)


_HAS_TIMERFD = sys.platform.startswith("linux")


class _TimeSpec(ctypes.Structure):
    _fields_ = (("seconds", ctypes.c_long), ("nanoseconds", ctypes.c_long))


class _TimerSpec(ctypes.Structure):
    _fields_ = (("interval", _TimeSpec), ("value", _TimeSpec))


# From the kernel's interface (timerfd_create(2)); Python 3.13 has them in `os`.
_CLOCK_MONOTONIC = 1
_NONBLOCK_CLOEXEC = 0o4000 | 0o2000000
_ABSOLUTE_TIME = 1


class _KernelAlarm:
    """A timerfd: high-resolution, and ready to read when it rings."""

    def __init__(self, loop: asyncio.AbstractEventLoop, ring: Callable[[], None]) -> None:
        self._library = ctypes.CDLL(None, use_errno=True)
        self._file = self._library.timerfd_create(_CLOCK_MONOTONIC, _NONBLOCK_CLOEXEC)
        if self._file < 0:
            code = ctypes.get_errno()
            raise OSError(code, os.strerror(code))
        self._loop = loop
        self._on_ring = ring
        self._spec = _TimerSpec()
        self._spec_pointer = ctypes.byref(self._spec)
        loop.add_reader(self._file, self._read)

    def set(self, due_ns: int) -> None:
        # A time of zero would switch the timer off; one in the past rings at once.
        seconds, nanoseconds = divmod(max(due_ns, 1), NS_PER_S)
        self._spec.value.seconds, self._spec.value.nanoseconds = seconds, nanoseconds
        self._library.timerfd_settime(self._file, _ABSOLUTE_TIME, self._spec_pointer, None)

    def close(self) -> None:
        if self._file >= 0:
            self._loop.remove_reader(self._file)
            os.close(self._file)
            self._file = -1

    def _read(self) -> None:
        try:
            os.read(self._file, 8)
        except BlockingIOError:
            return  # it was set anew between ringing and being read
        self._on_ring()


class _LoopAlarm:
    """A loop timer that rings up to two milliseconds early, then once per turn of the loop."""

    _EARLY_NS = 2 * NS_PER_MS

    def __init__(self, loop: asyncio.AbstractEventLoop, ring: Callable[[], None]) -> None:
        self._loop = loop
        self._on_ring = ring
        self._due_ns = 0
        self._handle: asyncio.Handle | None = None

    def set(self, due_ns: int) -> None:
        self.close()
        self._due_ns = due_ns
        wait_ns = due_ns - time.monotonic_ns() - self._EARLY_NS
        if wait_ns > 0:
            self._handle = self._loop.call_later(wait_ns / NS_PER_S, self._poll)
        else:
            self._handle = self._loop.call_soon(self._poll)

    def close(self) -> None:
        if self._handle is not None:
            self._handle.cancel()
            self._handle = None

    def _poll(self) -> None:
        if time.monotonic_ns() >= self._due_ns:
            self._handle = None
            self._on_ring()
        else:
            self._handle = self._loop.call_soon(self._poll)
