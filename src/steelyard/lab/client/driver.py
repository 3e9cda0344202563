"""Plays one worker's share of a plan against a server, each request at its own time.

Latency is counted from the scheduled time, so whatever delays a request in here shows: the loop's
lag (dispatched), an asked cap (released), a new connection (sent). Nothing is ever left out because
something was late.
"""

import asyncio
import itertools
import time
from collections.abc import Coroutine, Iterator
from dataclasses import dataclass
from typing import Any, Protocol

from steelyard.lab.client.exchange import Exchange
from steelyard.lab.client.pacing import Pacer
from steelyard.lab.client.prepared import PreparedOpenings
from steelyard.lab.client.recorder import Recorder
from steelyard.lab.load import ClosedLoop, Plan, Turn
from steelyard.lab.outcomes import Outcome

__all__ = ["Driver", "Limits", "Sender", "Share", "sessions_of"]

_WATCH_EVERY_S = 0.05
_PAUSE_AFTER_FAILURE_S = 0.1
"""Of a closed loop's user: a server that refuses at once would be asked thousands of times."""


class Sender(Protocol):
    """Whoever puts requests on connections: `ConnectionPool`, or a faulty one in tests."""

    async def send(self, exchange: Exchange, request: bytes) -> None: ...


@dataclass(frozen=True, slots=True)
class Limits:
    """How patient the client is."""

    request_s: float = 600.0
    """For a whole answer, from when it was sent."""
    stall_s: float = 120.0
    """Without a single byte, before or within an answer."""
    drain_s: float = 600.0
    """For the last answers, after the last request was due."""


@dataclass(frozen=True, slots=True)
class Share:
    """Worker `worker` of `workers`: it plays sessions worker, worker + workers, …"""

    worker: int = 0
    workers: int = 1

    def part_of(self, total: int) -> int:
        """This worker's part of a number that all share."""
        return total // self.workers + (self.worker < total % self.workers)


class Driver:
    """One run of one worker. `run` once; `stop` any time."""

    def __init__(
        self,
        *,
        plan: Plan,
        openings: PreparedOpenings,
        sender: Sender,
        recorder: Recorder,
        pacer: Pacer,
        start_s: float,
        share: Share = Share(),
        limits: Limits = Limits(),
        run_id: str = "run",
        count_again_every: int = 0,
    ) -> None:
        """`start_s`: time zero of the plan on the monotonic clock.

        `count_again_every`: of one in so many sessions the text is kept, to count its tokens. 0:
        of none.
        """
        self._plan = plan
        self._sender = sender
        self._recorder = recorder
        self._pacer = pacer
        self._start_s = start_s
        self._share = share
        self._limits = limits
        self._run_id = run_id
        self._count_again_every = count_again_every
        self._openings = openings
        cap = getattr(plan.arrivals, "concurrency_cap", None)
        self._cap = None if cap is None else asyncio.Semaphore(share.part_of(cap))
        self._running: set[Exchange] = set()
        self._tasks: set[asyncio.Task[None]] = set()
        self._stop_asked = asyncio.Event()
        self._error: BaseException | None = None
        """A bug of ours in one of the tasks; the run then stops."""
        self.in_flight_peak = 0
        self.started = 0
        """Requests that the client has turned to."""

    @property
    def in_flight(self) -> int:
        return len(self._running)

    async def run(self) -> None:
        """Play everything and wait for the answers, or until `stop`."""
        main = asyncio.create_task(self._play_all())
        watch = asyncio.create_task(self._watch())
        stop_asked = asyncio.create_task(self._stop_asked.wait())
        try:
            await asyncio.wait((main, stop_asked), return_when=asyncio.FIRST_COMPLETED)
            if main.done():
                main.result()
        finally:
            for task in (main, watch, stop_asked):
                task.cancel()
            await self._abandon()
        if self._error is not None:
            raise self._error

    def stop(self) -> None:
        """Abandon what runs, which stays on record as such; `run` then returns. Safe to repeat."""
        self._stop_asked.set()

    async def _play_all(self) -> None:
        if isinstance(self._plan.arrivals, ClosedLoop):
            await self._closed_loop(self._plan.arrivals)
        else:
            await self._open_loop()
        if self._tasks:
            await asyncio.wait(tuple(self._tasks), timeout=self._limits.drain_s)

    async def _open_loop(self) -> None:
        starts_s = self._plan.starts_s
        assert starts_s is not None, "an open loop has times"
        for session in sessions_of(self._plan, self._share):
            due_s = self._start_s + float(starts_s[session])
            await self._pacer.until(due_s)
            self._spawn(self._play(session, due_s))

    async def _closed_loop(self, arrivals: ClosedLoop) -> None:
        sessions = sessions_of(self._plan, self._share)
        for number in range(self._share.part_of(arrivals.concurrency)):
            user = self._share.worker + number * self._share.workers
            begins_s = self._start_s + arrivals.ramp_s * user / arrivals.concurrency
            self._spawn(self._user(sessions, begins_s))
        if arrivals.duration_s is not None:
            await self._pacer.until(self._start_s + arrivals.duration_s)
        elif self._tasks:
            await asyncio.wait(tuple(self._tasks))

    async def _user(self, sessions: Iterator[int], begins_s: float) -> None:
        await self._pacer.until(begins_s)
        for session in sessions:
            now_s = time.monotonic()
            if self._is_over(now_s):
                return
            if not await self._play(session, max(now_s, begins_s)):
                await asyncio.sleep(_PAUSE_AFTER_FAILURE_S)

    async def _play(self, session: int, scheduled_s: float) -> bool:
        """All turns of a session; whether it came to its end."""
        conversation, asked_tokens = None, 0
        turns = self._plan.turns(session)
        for turn in turns:
            if turn.number == 0:
                conversation, body = self._openings.take(session, turn)
            else:
                assert conversation is not None
                await self._pacer.until(scheduled_s)
                if self._is_over(scheduled_s):
                    return True
                body = conversation.ask(turn.output_tokens)
            asked_tokens += turn.input_tokens
            exchange = self._exchange(turn, scheduled_s, asked_tokens)
            exchange.is_kept |= turn.number + 1 < len(turns)
            await self._ask(exchange, body)
            if not exchange.is_complete:
                return False
            if turn.number + 1 < len(turns):
                conversation.hear(exchange.answer_text)
                scheduled_s = exchange.end_s + turns[turn.number + 1].think_s
            asked_tokens += turn.output_tokens
        return True

    def _exchange(self, turn: Turn, scheduled_s: float, prompt_tokens: int) -> Exchange:
        exchange = Exchange(session=turn.session, turn=turn.number, scheduled_s=scheduled_s)
        exchange.prompt_asked = prompt_tokens
        exchange.output_asked = turn.output_tokens
        exchange.is_kept = self._counts_again(turn.session)
        return exchange

    async def _ask(self, exchange: Exchange, body: bytes) -> None:
        request_id = f"{self._run_id}-{exchange.session}-{exchange.turn}"
        request = self._openings.request(body, request_id)
        exchange.dispatched_s = time.monotonic()
        self.started += 1
        try:
            if self._cap is None:
                await self._send(exchange, request)
            else:
                async with self._cap:
                    await self._send(exchange, request)
        finally:
            exchange.fail(Outcome.ABANDONED, time.monotonic(), "")  # unless it has ended
            counted = exchange.full_text if self._counts_again(exchange.session) else None
            self._recorder.add(exchange, counted_text=counted)

    async def _send(self, exchange: Exchange, request: bytes) -> None:
        exchange.released_s = time.monotonic()
        self._running.add(exchange)
        self.in_flight_peak = max(self.in_flight_peak, len(self._running))
        try:
            await self._sender.send(exchange, request)
            await exchange.done
        finally:
            self._running.discard(exchange)

    async def _abandon(self) -> None:
        now_s = time.monotonic()
        for exchange in tuple(self._running):
            exchange.fail(Outcome.ABANDONED, now_s, "")
            exchange.cancel()
        await asyncio.sleep(0)  # their tasks put them on record
        tasks = tuple(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _watch(self) -> None:
        """End what takes too long. A tenth of a second late does not matter: failures have no
        latency."""
        limits = self._limits
        while True:
            await asyncio.sleep(_WATCH_EVERY_S)
            now_s = time.monotonic()
            for exchange in tuple(self._running):
                quiet_since_s = _latest(exchange.released_s, exchange.sent_s, exchange.last_byte_s)
                if now_s - quiet_since_s > limits.stall_s:
                    exchange.fail(Outcome.STALLED, now_s, f"no byte for {limits.stall_s:g} s")
                elif now_s - exchange.released_s > limits.request_s:
                    message = f"not complete after {limits.request_s:g} s"
                    exchange.fail(Outcome.TIMED_OUT, now_s, message)
                else:
                    continue
                exchange.cancel()

    def _is_over(self, time_s: float) -> bool:
        """Whether no request may be scheduled for this time any more."""
        duration_s = self._plan.duration_s
        return duration_s is not None and time_s - self._start_s >= duration_s

    def _counts_again(self, session: int) -> bool:
        every = self._count_again_every
        return every > 0 and session % every == 0

    def _spawn(self, work: Coroutine[Any, Any, object]) -> None:
        task: asyncio.Task[Any] = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._on_done)

    def _on_done(self, task: asyncio.Task[Any]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            self._error = self._error or error
            self._stop_asked.set()


def sessions_of(plan: Plan, share: Share) -> Iterator[int]:
    """Those of one worker, in order; without end when time decides."""
    numbers = itertools.count(share.worker, share.workers)
    limit = plan.limit
    return numbers if limit is None else itertools.takewhile(lambda n: n < limit, numbers)


def _latest(*times_s: float) -> float:
    """Of those that have happened."""
    return max(time_s for time_s in times_s if time_s == time_s)
