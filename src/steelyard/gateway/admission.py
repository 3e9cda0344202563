"""The bounded queue at the door: so many at the engine, so many waiting, the rest told at once.

First come, first served. Fairness among tenants and priorities will replace the queue; the slot's
rule stays: taken once, given back exactly once, whatever happens in between.
"""

import asyncio
from collections import deque
from types import TracebackType

from steelyard.contract import Clock
from steelyard.contract.clock import within
from steelyard.contract.errors import Overloaded

__all__ = ["Admission"]


class Admission:
    """Slots for requests in flight, and a queue for them. Used from one event loop."""

    def __init__(
        self, *, max_in_flight: int, max_queue: int, queue_timeout_s: float, clock: Clock
    ) -> None:
        self._free = max_in_flight
        self._max_in_flight = max_in_flight
        self._max_queue = max_queue
        self._queue_timeout_s = queue_timeout_s
        self.clock = clock
        self._waiting: deque[asyncio.Future[None]] = deque()
        self._mean_s = 1.0
        """Recent mean of how long a slot was held; only the Retry-After hint depends on it."""

    @property
    def in_flight(self) -> int:
        """Slots taken."""
        return self._max_in_flight - self._free

    @property
    def waiting(self) -> int:
        """Requests in the queue."""
        return len(self._waiting)

    def adopt(self, *, max_queue: int, queue_timeout_s: float) -> None:
        """Change the queue's limits; those who wait already may go on waiting."""
        self._max_queue = max_queue
        self._queue_timeout_s = queue_timeout_s

    def slot(self) -> "_Slot":
        """An asynchronous context that holds a slot, after waiting for one if need be.

        Entering it raises `Overloaded`.
        """
        return _Slot(self)

    async def take(self) -> None:
        """Wait for a slot. Raises `Overloaded` when the queue is full or the wait too long."""
        if self._free > 0:
            self._free -= 1
            return
        if len(self._waiting) >= self._max_queue:
            raise Overloaded(
                f"the server is full: {len(self._waiting)} requests are waiting",
                delay_s=self._delay_s(),
                fix="Retry after the given delay.",
            )
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append(turn)
        try:
            await within(self.clock, self._queue_timeout_s, turn)
        except BaseException as error:
            if turn.cancelled():
                self._waiting.remove(turn)
            else:
                self._give_back()  # our turn had come, but we cannot use it any more
            if isinstance(error, TimeoutError):
                raise Overloaded(
                    f"no slot came free within {self._queue_timeout_s:g} s",
                    delay_s=self._delay_s(),
                    fix="Retry after the given delay.",
                ) from None
            raise

    def give_back(self, held_s: float) -> None:
        """Return a slot that was held for `held_s`; the longest waiting request gets it."""
        self._mean_s += 0.1 * (held_s - self._mean_s)
        self._give_back()

    def _give_back(self) -> None:
        for turn in self._waiting:
            if not turn.done():  # a cancelled one is about to remove itself
                self._waiting.remove(turn)
                turn.set_result(None)
                return
        self._free += 1

    def _delay_s(self) -> float:
        """When a slot is likely to be free for one request more."""
        rounds = (len(self._waiting) + 1) / self._max_in_flight
        return min(max(rounds * self._mean_s, 1.0), 60.0)


class _Slot:
    """Holds one slot between entry and exit."""

    __slots__ = ("_admission", "_taken_s")

    def __init__(self, admission: Admission) -> None:
        self._admission = admission
        self._taken_s = 0.0

    async def __aenter__(self) -> None:
        await self._admission.take()
        self._taken_s = self._admission.clock.now()

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._admission.give_back(self._admission.clock.now() - self._taken_s)
