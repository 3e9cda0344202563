"""The engine's core: take commands, plan a step, run it, apply it, send what it produced.

One thread, one loop. `scheduling` decides, the runner computes, `engine.transport` carries; here
is only the order of things, and which client each request belongs to. The transport does not
block, so a slow client never slows a step; an idle engine sleeps in `poll`.
"""

import logging
from collections.abc import Callable
from dataclasses import asdict, dataclass

from steelyard.contract import Clock, EngineInfo, EngineStatus, GenerateRequest, TokenChunk
from steelyard.contract.errors import (
    EngineDraining,
    EngineFailed,
    InvalidRequest,
    SteelyardError,
    to_info,
)
from steelyard.contract.wire import (
    PROTOCOL_VERSION,
    Abort,
    Chunks,
    Command,
    Done,
    Drain,
    Failed,
    Hello,
    StatusQuery,
    StatusReply,
    Submit,
    Warm,
)
from steelyard.engine.admission import RESERVED_ID_PREFIX, check_request
from steelyard.engine.runner_protocol import RunnerError, StepRunner
from steelyard.engine.transport import Happening, Notice, Transport
from steelyard.engine.warming import Answer, Warming
from steelyard.engine.watchdog import StepAge
from steelyard.scheduling.scheduler import Scheduler
from steelyard.scheduling.step_plan import StepOutcome, StepPlan, StepResult

__all__ = ["EngineLoop", "LoopParts"]

_log = logging.getLogger(__name__)

_REST_S = 10.0
"""Without work for so long, the scheduler's books are checked, which can take 50 ms."""


@dataclass(frozen=True, slots=True)
class LoopParts:
    """What the loop puts in order."""

    transport: Transport
    scheduler: Scheduler
    runner: StepRunner
    age: StepAge
    """Told when a step begins and ends."""
    clock: Clock


class EngineLoop:
    """Serves `info` until `is_stop_requested()`, then finishes what it has for up to `drain_s`."""

    def __init__(
        self,
        parts: LoopParts,
        info: EngineInfo,
        *,
        is_stop_requested: Callable[[], bool],
        drain_s: float,
    ) -> None:
        self._transport = parts.transport
        self._scheduler = parts.scheduler
        self._runner = parts.runner
        self._age = parts.age
        self._clock = parts.clock
        self._info = info
        self._is_stop_requested = is_stop_requested
        self._drain_s = drain_s
        self._owners: dict[str, int] = {}
        """Request id → the connection it came over."""
        self._warming = Warming(parts.scheduler, parts.clock, info.vocab_size)
        self._is_draining = False
        self._stop_by_s: float | None = None
        """When an unfinished drain is cut short; None while no stop was requested."""
        self._drainers: list[Answer] = []
        """Who is told when everything accepted has ended."""
        self._plan = StepPlan()
        self._check_at_s: float | None = None
        """When the books are checked if nothing comes in between; None once they were."""

    def serve(self) -> None:
        """Returns once stopped. Raises whatever the runner raises, except `RunnerError`."""
        for connection_id in self._transport.connection_ids:
            self._greet(connection_id)
        while not self._is_over():
            for happening in self._transport.poll(self._patience_s()):
                self._react(happening)
            self._plan = self._scheduler.plan(self._clock.now())
            self._send(self._step(self._plan))
            self._check_when_rested()
        self._hand_back()

    def _step(self, plan: StepPlan) -> StepOutcome:
        if plan.is_empty:
            return self._scheduler.apply(plan, StepResult.nothing(), self._clock.now())
        self._age.begin()
        try:
            result = self._runner.run(plan)
        except RunnerError as error:
            _log.error("a step of %d requests failed", len(plan.slices), exc_info=error)
            self._scheduler.fail(plan, EngineFailed("the engine failed on this step"))
            return StepOutcome([], [])
        finally:
            self._age.end()
        return self._scheduler.apply(plan, result, self._clock.now())

    def _send(self, outcome: StepOutcome) -> None:
        """One frame per client, whatever the number of its requests."""
        owners = self._owners
        frames: dict[int, list[TokenChunk]] = {}
        for chunk in outcome.chunks:
            owner = owners.get(chunk.request_id)
            if owner is None:
                self._note_warmed(chunk)
                continue
            if owner in frames:
                frames[owner].append(chunk)
            else:
                frames[owner] = [chunk]
            if chunk.finish_reason is not None:
                del owners[chunk.request_id]
        for connection_id, chunks in frames.items():
            self._transport.send(connection_id, Chunks(tuple(chunks)))
        for request_id, error in outcome.failures:
            self._report_failure(request_id, error)

    def _note_warmed(self, chunk: TokenChunk) -> None:
        if chunk.finish_reason is not None:
            self._answer(self._warming.on_end(chunk.request_id, None))

    def _report_failure(self, request_id: str, error: SteelyardError) -> None:
        owner = self._owners.pop(request_id, None)
        if owner is None:
            self._answer(self._warming.on_end(request_id, error))
        else:
            self._transport.send(owner, Failed(request_id, to_info(error)))

    def _patience_s(self) -> float | None:
        """How long to wait for news before the next plan; None: until there is some."""
        if not self._plan.is_empty:
            return 0.0
        times_s = (self._plan.wake_at_s, self._stop_by_s, self._check_at_s)
        due = [time_s for time_s in times_s if time_s is not None]
        return max(min(due) - self._clock.now(), 0.0) if due else None

    def _check_when_rested(self) -> None:
        """Assert that nothing leaked, once after each busy time: a leak must not grow unseen."""
        if self._scheduler.has_work:
            self._check_at_s = self._clock.now() + _REST_S
        elif self._check_at_s is not None and self._clock.now() >= self._check_at_s:
            self._check_at_s = None
            self._scheduler.check_integrity()
            assert not self._owners, self._owners

    # What clients say.

    def _react(self, happening: Happening) -> None:
        connection_id, news = happening
        match news:
            case Notice.OPENED:
                self._greet(connection_id)
            case Notice.CLOSED:
                self._forget(connection_id)
            case Notice.WOKEN:
                pass  # `_is_over` asks whether there was a reason.
            case _:
                self._obey(connection_id, news)

    def _obey(self, connection_id: int, command: Command) -> None:
        match command:
            case Submit(request):
                self._submit(connection_id, request)
            case Abort(request_id):
                self._abort(connection_id, request_id)
            case StatusQuery(query_id):
                self._transport.send(connection_id, StatusReply(query_id, self._status()))
            case Warm():
                self._warm(connection_id, command)
            case Drain(query_id):
                self._begin_drain()
                self._drainers.append((connection_id, Done(query_id)))

    def _greet(self, connection_id: int) -> None:
        self._transport.send(connection_id, Hello(PROTOCOL_VERSION, self._info))

    def _forget(self, connection_id: int) -> None:
        """A client is gone: nobody wants what it asked for."""
        for request_id in [rid for rid, owner in self._owners.items() if owner == connection_id]:
            self._abort(connection_id, request_id)
        self._warming.forget(connection_id)
        self._drainers = [waiting for waiting in self._drainers if waiting[0] != connection_id]

    def _submit(self, connection_id: int, request: GenerateRequest) -> None:
        try:
            self._refuse_if_draining()
            self._refuse_foreign_id(request.request_id)
            check_request(request, vocab_size=self._info.vocab_size)
            self._scheduler.submit(request, self._clock.now())
        except SteelyardError as error:
            self._transport.send(connection_id, Failed(request.request_id, to_info(error)))
        else:
            self._owners[request.request_id] = connection_id

    def _refuse_foreign_id(self, request_id: str) -> None:
        if request_id in self._owners:
            raise InvalidRequest("this request id is in use", param="request_id")
        if request_id.startswith(RESERVED_ID_PREFIX):
            raise InvalidRequest("must not start with a NUL character", param="request_id")

    def _abort(self, connection_id: int, request_id: str) -> None:
        """A client may abort what is its own; anything else is taken as over already."""
        if self._owners.get(request_id) == connection_id:
            del self._owners[request_id]
            self._scheduler.abort(request_id)

    def _warm(self, connection_id: int, command: Warm) -> None:
        try:
            self._refuse_if_draining()
        except EngineDraining as error:
            self._answer((connection_id, Done(command.query_id, to_info(error))))
        else:
            self._answer(self._warming.begin(connection_id, command))

    def _answer(self, answer: Answer | None) -> None:
        if answer is not None:
            connection_id, done = answer
            self._transport.send(connection_id, done)

    def _status(self) -> EngineStatus:
        return EngineStatus(
            state="draining" if self._is_draining else "ready",
            epoch=self._info.epoch,
            **asdict(self._scheduler.status_counters),
        )

    # How it ends.

    def _refuse_if_draining(self) -> None:
        if self._is_draining:
            raise EngineDraining("the engine takes no new requests")

    def _begin_drain(self) -> None:
        self._is_draining = True
        for answer in self._warming.give_up(EngineDraining("the engine takes no new requests")):
            self._answer(answer)

    def _is_over(self) -> bool:
        """True once a requested stop is complete; tells those who wait for the end of a drain."""
        if self._stop_by_s is None and self._is_stop_requested():
            self._begin_drain()
            self._stop_by_s = self._clock.now() + self._drain_s
            _log.info("stopping: %d requests are unfinished", len(self._owners))
        if not self._is_draining:
            return False
        if not self._scheduler.has_work:
            for waiting in self._drainers:
                self._answer(waiting)
            self._drainers.clear()
            return self._stop_by_s is not None
        return self._stop_by_s is not None and self._clock.now() >= self._stop_by_s

    def _hand_back(self) -> None:
        """Whatever the drain had no time for is served elsewhere, from where it is now."""
        for request_id in list(self._owners):
            self._scheduler.abort(request_id)
            self._report_failure(request_id, EngineDraining("the engine is stopping"))
