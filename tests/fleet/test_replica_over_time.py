"""What a replica does over seconds and days, in virtual time."""

import asyncio
import itertools

from steelyard.contract import VirtualClock
from steelyard.contract.errors import EngineLost, EngineStalled, EngineStarting
from steelyard.contract.wire import Progress
from steelyard.fleet.config import RestartPolicy
from steelyard.fleet.lifecycle import Phase
from steelyard.fleet.replica import Replica, ReplicaStatus

from .virtual_world import FakeWorld


async def test_a_crash_loop_is_slowed_down_in_virtual_time() -> None:
    clock = VirtualClock()
    world = FakeWorld(clock, ready_after_s=1000)
    policy = RestartPolicy(
        backoff_first_s=1, backoff_factor=2, backoff_cap_s=10, give_up_after=1_000
    )
    replica = Replica("r0", launcher=world, engine=world, clock=clock, policy=policy)
    replica.startup()
    await clock.advance(0)
    for _ in range(8):
        assert world.process is not None
        world.process.die()
        await clock.advance(10)
    pauses = [after - before for before, after in itertools.pairwise(world.launches)]
    # Each death comes ten seconds after the one before, each start its pause after a death.
    assert pauses == [0, 11, 11, 12, 14, 12, 10, 10]
    await _end(replica, clock)


async def test_a_replica_runs_for_days_through_deaths_and_lost_connections() -> None:
    clock = VirtualClock()
    world = FakeWorld(clock)
    changes: list[ReplicaStatus] = []
    replica = Replica(
        "r0",
        launcher=world,
        engine=world,
        clock=clock,
        policy=RestartPolicy(silence_s=36_000),  # fewer looks to simulate
        on_change=changes.append,
    )
    replica.startup()
    await clock.advance(2)
    await replica.wait_ready()
    for _day in range(5):
        assert world.process is not None
        world.process.die()
        await clock.advance(3)
        await replica.wait_ready()
        await clock.advance(86_400)
        assert world.lost is not None
        world.lost.set_result(EngineLost("the connection broke"))
        await clock.advance(3)
        await replica.wait_ready()
    assert replica.status.restarts == 5
    assert replica.status.error is None
    await _end(replica, clock)
    phases = [change.phase for change in changes]
    assert phases[-1] is Phase.DOWN
    assert Phase.READY in phases and Phase.STARTING in phases


async def test_a_connection_that_does_not_come_back_gets_the_process_replaced() -> None:
    clock = VirtualClock()
    world = FakeWorld(clock)
    policy = RestartPolicy(reconnect_timeout_s=10)
    replica = Replica("r0", launcher=world, engine=world, clock=clock, policy=policy)
    replica.startup()
    await clock.advance(2)
    await replica.wait_ready()
    assert world.lost is not None
    world.ready_after_s = 1000
    world.lost.set_result(EngineLost("the connection broke"))
    await clock.advance(9.9)
    assert len(world.launches) == 1
    await clock.advance(0.2)
    assert len(world.launches) == 2
    await _end(replica, clock)


async def test_a_mute_process_is_replaced_after_the_silence_it_is_allowed() -> None:
    clock = VirtualClock()
    world = FakeWorld(clock)
    policy = RestartPolicy(silence_s=100, reconnect_timeout_s=10)
    replica = Replica("r0", launcher=world, engine=world, clock=clock, policy=policy)
    replica.startup()
    await clock.advance(1_000)
    assert len(world.launches) == 1, "it answers, so it is left alone"
    world.is_mute, world.ready_after_s = True, 1_000
    await clock.advance(85)
    assert replica.status.phase is Phase.READY
    await clock.advance(30)
    assert len(world.launches) == 2
    assert isinstance(replica.status.error, EngineStalled)
    await _end(replica, clock)


async def test_a_silence_that_ends_in_time_changes_nothing() -> None:
    clock = VirtualClock()
    world = FakeWorld(clock)
    policy = RestartPolicy(silence_s=100)
    replica = Replica("r0", launcher=world, engine=world, clock=clock, policy=policy)
    replica.startup()
    await clock.advance(2)
    for _ in range(10):
        world.is_mute = True
        await clock.advance(85)
        world.is_mute = False
        await clock.advance(15)
    assert replica.status.phase is Phase.READY
    assert len(world.launches) == 1
    await _end(replica, clock)


async def test_requests_are_told_how_far_a_start_is() -> None:
    clock = VirtualClock()
    world = FakeWorld(clock, ready_after_s=50)
    replica = Replica("r0", launcher=world, engine=world, clock=clock)
    assert str(replica.absence()) == "the engine is starting"
    replica.startup()
    await clock.advance(1)
    assert world.on_progress is not None
    world.on_progress(Progress(share=0.45, what="loading layer 3"))
    told = replica.absence()
    assert isinstance(told, EngineStarting)
    assert told.message == "the engine is starting: loading layer 3, 45%"
    assert told.delay_s >= 1
    await _end(replica, clock)


async def test_requests_are_told_when_a_dead_engine_is_started_again() -> None:
    clock = VirtualClock()
    world = FakeWorld(clock)
    policy = RestartPolicy(backoff_first_s=20)
    replica = Replica("r0", launcher=world, engine=world, clock=clock, policy=policy)
    replica.startup()
    await clock.advance(2)
    for _ in range(2):
        assert world.process is not None
        world.process.die()
        await clock.advance(0.1)
    told = replica.absence()
    assert isinstance(told, EngineStarting)
    assert told.message == "the engine was lost and is being restarted"
    assert 20 < told.delay_s < 25
    await _end(replica, clock)
    assert isinstance(replica.absence(), EngineLost)


async def test_whoever_waits_hears_that_a_replica_is_beyond_repair() -> None:
    clock = VirtualClock()
    world = FakeWorld(clock)
    replica = Replica("r0", launcher=world, engine=world, clock=clock)
    replica.startup()
    await clock.advance(2)
    waiting = asyncio.create_task(replica.wait_broken())
    await clock.advance(1)
    assert not waiting.done()
    assert world.process is not None
    world.process.die(is_final=True)
    await clock.advance(1)
    assert str(await waiting) == "1 died"
    assert not isinstance(replica.absence(), EngineStarting)
    await _end(replica, clock)


async def _end(replica: Replica, clock: VirtualClock) -> None:
    stopping = asyncio.create_task(replica.shutdown())
    await clock.advance(1)
    await stopping
