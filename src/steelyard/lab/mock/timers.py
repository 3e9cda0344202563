"""Calls at exact times: what the mock's decisions are scheduled with.

`Timers` is the protocol. `VirtualTimers` stands still until it is told to run, for tests and
simulations; `precise_timers` keeps real time.
"""

import heapq
import itertools
from collections.abc import Callable
from typing import Any, Protocol

__all__ = ["NS_PER_MS", "NS_PER_S", "Timers", "VirtualTimers"]

NS_PER_MS = 1_000_000
NS_PER_S = 1_000_000_000

Entry = tuple[int, int, Callable[[Any, int], None], Any]
"""Due time, order of arrival, what to call, its first argument; a heap of these is a schedule."""


class Timers(Protocol):
    """A monotonic clock in nanoseconds that also calls back."""

    def now_ns(self) -> int:
        """Nanoseconds; never runs backwards; its zero has no meaning."""
        ...

    def at(self, due_ns: int, call: Callable[[Any, int], None], argument: Any) -> None:
        """Call `call(argument, due_ns)` once, at or soon after `due_ns`.

        Never from inside this method; equal times in the order of asking. A time that has passed
        is due at once. Nothing can be cancelled: whoever is called looks whether it still matters.
        """
        ...


class VirtualTimers:
    """Time that moves only by `run_until`, from one due call to the next."""

    def __init__(self, start_ns: int = 0) -> None:
        self._now_ns = start_ns
        self._schedule: list[Entry] = []
        self._order = itertools.count()

    def now_ns(self) -> int:
        return self._now_ns

    def at(self, due_ns: int, call: Callable[[Any, int], None], argument: Any) -> None:
        heapq.heappush(self._schedule, (due_ns, next(self._order), call, argument))

    def run_until(self, end_ns: int) -> None:
        """Make every call that is due up to `end_ns`, each at its own time."""
        while self._schedule and self._schedule[0][0] <= end_ns:
            due_ns, _, call, argument = heapq.heappop(self._schedule)
            self._now_ns = max(self._now_ns, due_ns)
            call(argument, due_ns)
        self._now_ns = max(self._now_ns, end_ns)
