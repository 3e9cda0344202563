"""What a replica does about its process: pure decisions, driven by hand."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from steelyard.contract.errors import (
    CheckpointError,
    EngineLost,
    EngineStalled,
    SteelyardError,
)
from steelyard.fleet.config import RestartPolicy
from steelyard.fleet.lifecycle import Action, Lifecycle, Phase

POLICY = RestartPolicy(
    start_timeout_s=100,
    reconnect_timeout_s=10,
    stop_grace_s=20,
    backoff_first_s=1,
    backoff_factor=2,
    backoff_cap_s=30,
    stable_s=60,
    give_up_after=5,
)
DEATH = EngineLost("died")


def started(policy: RestartPolicy = POLICY) -> Lifecycle:
    lifecycle = Lifecycle(policy)
    lifecycle.want(True)
    assert lifecycle.advance(0.0) is Action.SPAWN
    return lifecycle


def ready(at_s: float = 0.0) -> Lifecycle:
    lifecycle = started()
    lifecycle.on_ready(at_s)
    return lifecycle


def die(lifecycle: Lifecycle, at_s: float, error: SteelyardError = DEATH) -> None:
    lifecycle.on_exit(at_s, error, is_final=False)


def test_nothing_happens_to_a_replica_that_is_not_wanted() -> None:
    lifecycle = Lifecycle(POLICY)
    assert lifecycle.advance(0.0) is None
    assert lifecycle.phase is Phase.DOWN


def test_a_wanted_replica_is_spawned_once() -> None:
    lifecycle = started()
    assert lifecycle.phase is Phase.STARTING
    assert lifecycle.advance(1.0) is None
    lifecycle.on_ready(2.0)
    assert lifecycle.phase is Phase.READY
    assert lifecycle.due_s is None
    assert lifecycle.advance(1e9) is None


def test_a_first_death_is_followed_by_a_start_at_once() -> None:
    lifecycle = ready()
    die(lifecycle, 5.0)
    assert lifecycle.phase is Phase.WAITING
    assert lifecycle.error is DEATH
    assert lifecycle.advance(5.0) is Action.SPAWN
    assert lifecycle.restarts == 1
    lifecycle.on_ready(6.0)
    assert lifecycle.error is None


def test_deaths_in_a_row_are_followed_by_growing_pauses_up_to_a_cap() -> None:
    lifecycle = ready()
    pauses = []
    now_s = 0.0
    for _ in range(9):
        die(lifecycle, now_s)
        assert lifecycle.due_s is not None
        pauses.append(lifecycle.due_s - now_s)
        if pauses[-1]:
            assert lifecycle.advance(lifecycle.due_s - 0.01) is None
        now_s = lifecycle.due_s
        assert lifecycle.advance(now_s) is Action.SPAWN
        lifecycle.on_ready(now_s)
    assert pauses == [0, 1, 2, 4, 8, 16, 30, 30, 30]


def test_a_long_good_time_starts_the_row_of_deaths_afresh() -> None:
    lifecycle = ready()
    for now_s in (1.0, 2.0, 10.0):
        die(lifecycle, now_s)
        lifecycle.advance(now_s + 100)
        lifecycle.on_ready(now_s)
    die(lifecycle, 10.0 + POLICY.stable_s)
    assert lifecycle.due_s == 10.0 + POLICY.stable_s


def test_a_final_death_breaks_the_replica() -> None:
    lifecycle = started()
    reason = CheckpointError("truncated")
    lifecycle.on_exit(1.0, reason, is_final=True)
    assert lifecycle.phase is Phase.BROKEN
    assert lifecycle.error is reason
    assert lifecycle.advance(1e9) is None


def test_a_replica_that_never_worked_is_given_up_after_some_starts() -> None:
    lifecycle = started()
    for start in range(POLICY.give_up_after):
        assert lifecycle.phase is Phase.STARTING
        die(lifecycle, start * 100.0)
        lifecycle.advance(start * 100.0 + 99)
    assert lifecycle.phase is Phase.BROKEN
    assert lifecycle.restarts == POLICY.give_up_after - 1


def test_a_replica_that_once_worked_is_never_given_up() -> None:
    lifecycle = ready()
    for start in range(2000):
        die(lifecycle, start * 100.0)
        assert lifecycle.advance(start * 100.0 + 99) is Action.SPAWN


def test_a_broken_replica_gets_a_fresh_chance_when_it_is_wanted_again() -> None:
    lifecycle = started()
    lifecycle.on_exit(1.0, CheckpointError("truncated"), is_final=True)
    lifecycle.want(True)
    assert lifecycle.advance(2.0) is Action.SPAWN


def test_a_process_that_is_not_ready_in_time_is_killed_and_counts_as_dead() -> None:
    lifecycle = started()
    assert lifecycle.advance(99.9) is None
    assert lifecycle.advance(100.0) is Action.KILL
    assert lifecycle.advance(1000.0) is None
    die(lifecycle, 101.0, EngineLost("killed by SIGKILL"))
    assert lifecycle.phase is Phase.WAITING
    assert isinstance(lifecycle.error, EngineStalled), "why it was killed, not how it died"


def test_a_lost_connection_is_given_time_and_then_the_process_is_replaced() -> None:
    lifecycle = ready()
    lost = EngineLost("the connection broke")
    lifecycle.on_connection_lost(50.0, lost)
    assert lifecycle.phase is Phase.STARTING
    assert lifecycle.error is lost
    assert lifecycle.advance(59.9) is None
    assert lifecycle.advance(60.0) is Action.KILL
    die(lifecycle, 60.0)
    assert lifecycle.error is lost
    assert lifecycle.advance(60.0) is Action.SPAWN


def test_a_connection_that_comes_back_makes_the_replica_ready_without_a_restart() -> None:
    lifecycle = ready()
    lifecycle.on_connection_lost(50.0, EngineLost("the connection broke"))
    lifecycle.on_ready(51.0)
    assert lifecycle.phase is Phase.READY
    assert lifecycle.restarts == 0


def test_stopping_asks_first_and_kills_after_the_grace() -> None:
    lifecycle = ready()
    lifecycle.want(False)
    assert lifecycle.advance(5.0) is Action.TERMINATE
    assert lifecycle.advance(24.9) is None
    assert lifecycle.advance(25.0) is Action.KILL
    assert lifecycle.advance(1e9) is None
    die(lifecycle, 26.0)
    assert lifecycle.phase is Phase.DOWN
    assert lifecycle.advance(1e9) is None


def test_a_replica_wanted_again_while_it_stops_starts_once_it_has_ended() -> None:
    lifecycle = ready()
    lifecycle.want(False)
    lifecycle.advance(5.0)
    lifecycle.want(True)
    assert lifecycle.advance(6.0) is None
    die(lifecycle, 7.0)
    assert lifecycle.phase is Phase.DOWN, "it ended by order, which is no failure"
    assert lifecycle.advance(7.0) is Action.SPAWN


@pytest.mark.parametrize("phase", [Phase.WAITING, Phase.BROKEN])
def test_stopping_a_replica_without_a_process_has_nothing_to_do(phase: Phase) -> None:
    lifecycle = ready()
    lifecycle.on_exit(1.0, DEATH, is_final=phase is Phase.BROKEN)
    assert lifecycle.phase is phase
    lifecycle.want(False)
    assert lifecycle.advance(2.0) is None
    assert lifecycle.phase is Phase.DOWN


NEWS = st.sampled_from(["want", "unwant", "advance", "ready", "lost", "exit", "final exit"])


@given(st.lists(st.tuples(NEWS, st.floats(0, 50)), max_size=60))
def test_whatever_happens_there_is_one_process_at_most_and_the_target_is_reached(
    story: list[tuple[str, float]],
) -> None:
    lifecycle = Lifecycle(POLICY)
    is_alive = False
    now_s = 0.0

    def advance() -> None:
        nonlocal is_alive
        while (action := lifecycle.advance(now_s)) is not None:
            assert is_alive is (action is not Action.SPAWN)
            is_alive = True

    for news, pause_s in story:
        now_s += pause_s
        match news:
            case "want" | "unwant":
                lifecycle.want(news == "want")
            case "advance":
                advance()
            case "ready" if is_alive:
                lifecycle.on_ready(now_s)
            case "lost" if is_alive:
                lifecycle.on_connection_lost(now_s, DEATH)
            case "exit" | "final exit" if is_alive:
                is_alive = False
                lifecycle.on_exit(now_s, DEATH, is_final=news == "final exit")
    lifecycle.want(False)
    advance()
    if is_alive:
        assert lifecycle.phase is Phase.STOPPING
        lifecycle.on_exit(now_s, DEATH, is_final=False)
    assert lifecycle.advance(now_s) is None
    assert lifecycle.phase is Phase.DOWN
