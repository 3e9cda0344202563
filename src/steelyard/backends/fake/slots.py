"""Who runs in a fake engine, who waits, and how each of them ended.

A request leaves exactly once, whether it finished, failed, was aborted or lost its consumer.
"""

import asyncio
import random
from collections import deque

from steelyard.contract import GenerateRequest
from steelyard.contract.errors import Overloaded, SteelyardError

__all__ = ["Run", "Slots"]


class Run:
    """One request in a fake engine, waiting or running."""

    __slots__ = ("admitted", "delays", "ended_by", "has_left", "produced", "request", "resumed")

    def __init__(self, request: GenerateRequest, delay_seed: str) -> None:
        self.request = request
        self.admitted: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.delays = random.Random(delay_seed)  # noqa: S311 (delays, no secrets)
        self.ended_by: SteelyardError | None = None
        """Set when the request was stopped from outside; its iterator raises it on waking."""
        self.has_left = False
        self.produced = 0
        self.resumed: asyncio.Future[None] | None = None
        """What a stalled request waits for."""

    async def stall(self) -> None:
        """Wait until somebody stops this request, then raise what it was stopped with."""
        self.resumed = asyncio.get_running_loop().create_future()
        await self.resumed
        self.raise_if_ended()

    def stop(self, error: SteelyardError) -> None:
        """Let the request's iterator raise `error` as soon as it runs again."""
        self.ended_by = error
        for waited_for in (self.admitted, self.resumed):
            if waited_for is not None and not waited_for.done():
                waited_for.set_result(None)

    def raise_if_ended(self) -> None:
        if self.ended_by is not None:
            raise self.ended_by


class Slots:
    """A bounded number of running requests and a bounded queue, first come, first served."""

    def __init__(self, max_running: int, max_waiting: int) -> None:
        self._max_running = max_running
        self._max_waiting = max_waiting
        self._running: dict[str, Run] = {}
        self._waiting: dict[str, Run] = {}
        self._idle = asyncio.Event()
        self._idle.set()
        self.recent_aborts: deque[str] = deque(maxlen=1024)
        self.finished_total = 0
        self.aborted_total = 0

    @property
    def running(self) -> int:
        return len(self._running)

    @property
    def waiting(self) -> int:
        return len(self._waiting)

    def enter(self, run: Run) -> None:
        """Start `run` or queue it; `run.admitted` tells when it starts. Raises `Overloaded`."""
        self._idle.clear()
        if len(self._running) < self._max_running:
            self._start(run)
        elif len(self._waiting) < self._max_waiting:
            self._waiting[run.request.request_id] = run
        else:
            raise Overloaded(f"{len(self._waiting)} requests are waiting already")

    def leave(self, run: Run, *, finished: bool) -> None:
        """Give the slot to the next in the queue. A second call for the same run does nothing."""
        if run.has_left:
            return
        run.has_left = True
        request_id = run.request.request_id
        self._running.pop(request_id, None)
        self._waiting.pop(request_id, None)
        if finished:
            self.finished_total += 1
        else:
            self.aborted_total += 1
            self.recent_aborts.append(request_id)
        while self._waiting and len(self._running) < self._max_running:
            self._start(self._waiting.pop(next(iter(self._waiting))))
        if not self._running and not self._waiting:
            self._idle.set()

    def stop(self, request_id: str, error: SteelyardError) -> None:
        """End a request from outside and free its slot now. Unknown ids are ignored."""
        run = self._running.get(request_id) or self._waiting.get(request_id)
        if run is not None:
            run.stop(error)
            self.leave(run, finished=False)

    def stop_all(self, error: SteelyardError) -> None:
        """End every request, the waiting ones first so that none of them starts."""
        for request_id in [*self._waiting, *self._running]:
            self.stop(request_id, error)

    async def until_idle(self) -> None:
        """Return when nothing runs and nothing waits."""
        await self._idle.wait()

    def _start(self, run: Run) -> None:
        self._running[run.request.request_id] = run
        if not run.admitted.done():
            run.admitted.set_result(None)
