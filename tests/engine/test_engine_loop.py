"""The loop's order of things, in virtual time and without sockets."""

from collections import defaultdict
from pathlib import Path

import msgspec
import pytest

from steelyard.contract import EngineInfo, VirtualClock
from steelyard.contract.wire import (
    Abort,
    Chunks,
    Command,
    Done,
    Drain,
    Event,
    Failed,
    Hello,
    StatusQuery,
    StatusReply,
    Submit,
    Warm,
)
from steelyard.engine.config import EngineConfig
from steelyard.engine.fake_runner import FakeModel, FakeRunner
from steelyard.engine.loop import EngineLoop, LoopParts
from steelyard.engine.transport import WAKEUP, Happening, Notice
from steelyard.engine.watchdog import StepAge
from steelyard.scheduling.config import SchedulerConfig
from steelyard.scheduling.scheduler import Scheduler
from tests.engine_processes import make_request


class ScriptedTransport:
    """Delivers a script, one entry per time that the loop would wait; then requests a stop."""

    def __init__(self, clock: VirtualClock) -> None:
        self.clock = clock
        self.script: list[list[tuple[int, Command | Notice]]] = []
        self.connection_ids = [1, 2]
        self.sent: dict[int, list[Event]] = defaultdict(list)
        self.waits: list[float | None] = []
        self.is_stop_requested = False

    def poll(self, timeout_s: float | None) -> list[Happening]:
        self.waits.append(timeout_s)
        if timeout_s == 0:
            return []
        if self.script:
            return self.script.pop(0)
        if timeout_s is not None:
            self.clock.jump(timeout_s)
            return []
        self.is_stop_requested = True
        return [(WAKEUP, Notice.WOKEN)]

    def send(self, connection_id: int, event: Event) -> None:
        self.sent[connection_id].append(event)

    def of(self, connection_id: int, kind: type) -> list[Event]:
        return [event for event in self.sent[connection_id] if type(event) is kind]


class CountingScheduler(Scheduler):
    checks = 0

    def check_integrity(self) -> None:
        self.checks += 1
        super().check_integrity()


class World:
    """A loop with everything around it."""

    def __init__(self, folder: Path, model: FakeModel) -> None:
        checkpoint = folder / "model.json"
        checkpoint.write_bytes(msgspec.json.encode(model))
        runner = FakeRunner(
            EngineConfig(checkpoint=str(checkpoint), model="m", listen="unix:/x", runner="fake")
        )
        loaded = runner.load(lambda _share, _what: None)
        self.clock = VirtualClock()
        self.transport = ScriptedTransport(self.clock)
        self.scheduler = CountingScheduler(SchedulerConfig(), loaded.groups, loaded.end_token_ids)
        info = EngineInfo(
            model="m", context_tokens=2048, vocab_size=256, end_token_ids=(0,), epoch="e"
        )
        parts = LoopParts(
            transport=self.transport,  # type: ignore[arg-type]
            scheduler=self.scheduler,
            runner=runner,
            age=StepAge(),
            clock=self.clock,
        )
        self.loop = EngineLoop(
            parts,
            info,
            is_stop_requested=lambda: self.transport.is_stop_requested,
            drain_s=30.0,
        )

    def serve(self, *script: list[tuple[int, Command | Notice]]) -> ScriptedTransport:
        self.transport.script = list(script)
        self.loop.serve()
        return self.transport


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path, FakeModel())


def test_clients_that_came_while_loading_are_greeted_first(world: World) -> None:
    transport = world.serve()
    assert [type(transport.sent[client][0]) for client in (1, 2)] == [Hello, Hello]


def test_an_idle_engine_sleeps_until_there_is_news(world: World) -> None:
    assert world.serve().waits == [None]


def test_a_busy_engine_does_not_wait(world: World) -> None:
    transport = world.serve([(1, Submit(make_request(max_tokens=5)))])
    # Five steps: the prompt gives the first token.
    assert transport.waits[:6] == [None, 0, 0, 0, 0, 0]
    assert transport.waits[6] != 0


def test_a_step_sends_one_frame_to_each_client(world: World) -> None:
    transport = world.serve(
        [(client, Submit(make_request(f"{client}-{n}"))) for client in (1, 2) for n in range(5)]
    )
    for client in (1, 2):
        frames = transport.of(client, Chunks)
        assert len(frames) == 8
        for frame in frames:
            assert isinstance(frame, Chunks)
            assert {chunk.request_id for chunk in frame.chunks} == {
                f"{client}-{n}" for n in range(5)
            }


def test_the_books_are_checked_once_after_each_busy_time(world: World) -> None:
    world.serve([(1, Submit(make_request("a")))], [(1, Submit(make_request("b")))])
    # The second request comes before the rest after the first is over.
    assert world.scheduler.checks == 1
    assert world.clock.now() == pytest.approx(10.0)


def test_a_closed_connection_aborts_its_requests_before_the_next_step(world: World) -> None:
    transport = world.serve(
        [(1, Submit(make_request("a"))), (1, Notice.CLOSED), (2, Submit(make_request("b")))]
    )
    assert transport.of(1, Chunks) == []
    assert len(transport.of(2, Chunks)) == 8
    assert world.scheduler.status_counters.aborted_total == 1


def test_a_client_cannot_abort_what_another_one_asked_for(world: World) -> None:
    transport = world.serve([(1, Submit(make_request("a"))), (2, Abort("a"))])
    assert len(transport.of(1, Chunks)) == 8


def test_a_drain_is_answered_after_the_last_token(world: World) -> None:
    transport = world.serve([(1, Submit(make_request("a"))), (2, Drain(7))])
    assert transport.sent[2] == [transport.sent[2][0], Done(7)]
    assert len(transport.of(1, Chunks)) == 8


def test_warming_sends_no_tokens_and_is_answered_once(world: World) -> None:
    prompts = tuple((number,) * 40 for number in range(10))
    transport = world.serve([(1, Warm(3, prompts))], [(1, StatusQuery(4))])
    assert transport.of(1, Chunks) == []
    assert transport.of(1, Done) == [Done(3)]
    [reply] = transport.of(1, StatusReply)
    assert isinstance(reply, StatusReply)
    assert reply.status.prompt_tokens_total == 400


def test_a_drain_stops_warming(world: World) -> None:
    prompts = tuple((number,) * 2000 for number in range(10))
    transport = world.serve([(1, Warm(3, prompts)), (2, Drain(7))])
    [done] = transport.of(1, Done)
    assert isinstance(done, Done) and done.error is not None
    assert done.error.code == "engine_draining"
    assert transport.of(2, Done) == [Done(7)]


def test_a_late_request_is_reported_without_a_step(world: World) -> None:
    late = make_request("late", deadline_s=0.0)
    transport = world.serve([(1, Submit(late))])
    [failed] = transport.of(1, Failed)
    assert isinstance(failed, Failed)
    assert (failed.request_id, failed.error.code) == ("late", "deadline_exceeded")
    assert world.scheduler.status_counters.steps_total == 0
