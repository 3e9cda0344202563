"""Replica health: doubts, ejections that grow, slow returns; busy is not dead."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from steelyard.contract import EngineStatus
from steelyard.policies.config import HealthConfig
from steelyard.policies.health import Health, ReplicaHealth

CONFIG = HealthConfig(return_s=10.0, ejection_s=1.0, ejection_cap_s=60.0)


def idle(epoch: str = "e") -> EngineStatus:
    return EngineStatus(state="ready", epoch=epoch)


def busy(steps: int, *, epoch: str = "e", step_time_s: float = 0.02) -> EngineStatus:
    return EngineStatus(
        state="ready", epoch=epoch, running=3, steps_total=steps, step_time_s=step_time_s
    )


def answer(health: ReplicaHealth, now_s: float, status: EngineStatus) -> None:
    health.begin_probe(now_s)
    health.on_answer(now_s, status)


def miss(health: ReplicaHealth, now_s: float) -> None:
    timeout_s = health.begin_probe(now_s)
    health.on_miss(now_s + timeout_s)


def healthy(now_s: float = 0.0) -> ReplicaHealth:
    """A replica whose return is complete at `now_s`."""
    health = ReplicaHealth(CONFIG, now_s - 20.0)
    answer(health, now_s - 20.0, idle())
    assert health.share(now_s) == 1.0
    assert health.state is Health.HEALTHY
    return health


def test_a_new_replica_is_absent_until_its_first_answer_and_then_ramps_up() -> None:
    health = ReplicaHealth(CONFIG, 0.0)
    assert health.is_absent
    answer(health, 1.0, idle())
    assert health.state is Health.RETURNING and not health.is_absent
    shares = [health.share(1.0 + after_s) for after_s in (0.0, 2.5, 5.0, 7.5, 10.0)]
    assert shares == sorted(shares) and shares[0] == 0.1 and shares[-1] == 1.0
    assert health.state is Health.HEALTHY


def test_one_missed_probe_makes_suspect_and_three_eject() -> None:
    health = healthy()
    for expected in (Health.SUSPECT, Health.SUSPECT, Health.EJECTED):
        miss(health, health.next_probe_s)
        assert health.state is expected
    assert health.reason == "silent"


def test_a_suspect_is_probed_sooner_and_cleared_by_an_answer() -> None:
    health = healthy()
    miss(health, 5.0)
    assert health.next_probe_s <= 6.5 + CONFIG.doubt_probe_s
    answer(health, health.next_probe_s, idle())
    assert health.state is Health.HEALTHY


def test_a_saturated_replica_is_not_declared_dead() -> None:
    """It answers no probe in time, but tokens come from it."""
    health = healthy()
    now_s = 0.0
    for _ in range(50):
        timeout_s = health.begin_probe(now_s)
        health.on_tokens(now_s + timeout_s / 2)
        health.on_miss(now_s + timeout_s)
        assert health.state is Health.HEALTHY
        now_s = health.next_probe_s


def test_the_probes_timeout_grows_with_the_length_of_steps() -> None:
    health = healthy()
    idle_timeout_s = health.begin_probe(0.0)
    health.on_answer(0.0, busy(1, step_time_s=2.0))
    assert health.begin_probe(1.0) == pytest.approx(idle_timeout_s + 10.0)


def test_a_stalled_replica_is_probed_at_once_and_one_miss_ejects_it() -> None:
    health = healthy()
    health.on_stall(3.0)
    assert health.state is Health.SUSPECT and health.is_probe_due(3.0)
    miss(health, 3.0)
    assert health.state is Health.EJECTED


def test_an_answer_without_progress_does_not_clear_a_stalled_replica() -> None:
    """The front of a hung engine may answer for it."""
    health = healthy()
    health.on_stall(3.0)
    answer(health, 3.0, busy(100))
    assert health.state is Health.SUSPECT
    answer(health, 3.5, busy(100))
    answer(health, 4.5, busy(100))
    assert health.state is Health.EJECTED and health.reason == "stuck"


def test_progress_clears_a_stalled_replica() -> None:
    health = healthy()
    health.on_stall(3.0)
    answer(health, 3.0, busy(100))
    answer(health, 3.5, busy(101))
    assert health.state is Health.HEALTHY


def test_a_replica_whose_counters_stand_still_although_it_has_work_is_ejected() -> None:
    health = healthy()
    for now_s in (0.0, 5.0, 10.0):
        answer(health, now_s, busy(7))
    assert health.state is Health.EJECTED and health.reason == "stuck"


def test_an_idle_replica_is_not_stuck() -> None:
    health = healthy()
    for now_s in range(0, 100, 5):
        answer(health, now_s, idle())
    assert health.state is Health.HEALTHY


def test_tokens_speak_for_a_replica_whose_counters_are_not_told() -> None:
    health = healthy()
    for now_s in range(0, 100, 5):
        health.on_tokens(now_s)
        answer(health, now_s, busy(0))
    assert health.state is Health.HEALTHY


def test_a_lost_replica_returns_as_soon_as_a_fresh_process_answers() -> None:
    health = healthy()
    health.on_absence(0.0, "engine_lost")
    assert health.state is Health.EJECTED and health.is_absent
    assert health.next_probe_s <= CONFIG.doubt_probe_s
    answer(health, 2.0, idle("second"))
    assert health.state is Health.RETURNING


def test_errors_in_a_row_eject_and_a_success_in_between_forgives() -> None:
    health = healthy()
    for _ in range(4):
        health.on_error(1.0)
    health.on_success()
    health.on_error(1.0)
    assert health.state is Health.HEALTHY
    for _ in range(4):
        health.on_error(1.0)
    assert health.state is Health.EJECTED and health.reason == "errors"


def test_a_broken_connection_makes_suspect_not_absent() -> None:
    health = healthy()
    health.on_lost(1.0)
    assert health.state is Health.SUSPECT and not health.is_absent and health.is_probe_due(1.0)


def test_any_trouble_while_returning_ejects_again_and_for_longer() -> None:
    health = ReplicaHealth(CONFIG, 0.0)
    answer(health, 0.0, idle())
    health.on_error(1.0)
    assert health.state is Health.EJECTED
    answer(health, 2.0, idle())
    assert health.state is Health.RETURNING
    health.on_stall(3.0)
    answer(health, 4.0, idle())
    assert health.state is Health.EJECTED, "the second ejection lasts two seconds"
    answer(health, 5.0, idle())
    assert health.state is Health.RETURNING


def test_a_flapping_replica_stays_out_longer_every_time() -> None:
    """Up for a second, down for a second, as in a crash loop."""
    health = healthy()
    now_s, up_s = 0.0, 0.0
    for _ in range(300):
        health.on_absence(now_s, "engine_lost")
        now_s += 1.0
        answer(health, now_s, idle(f"epoch-{now_s}"))
        up_s += health.state is Health.RETURNING
        now_s += 1.0
    assert health.ejections > 5
    assert up_s / now_s < 0.03, "of the time it could have failed requests"


def test_good_behaviour_makes_past_ejections_forgotten() -> None:
    flapping = healthy()
    for now_s in range(0, 1000, 200):
        flapping.on_absence(now_s, "engine_lost")
        answer(flapping, now_s + 150, idle(f"epoch-{now_s}"))
    assert flapping.ejections == 5 and flapping.state is Health.RETURNING
    assert flapping.share(1000.0) == 1.0
    flapping.on_absence(1000.0 + 3.5 * CONFIG.forgive_s, "engine_lost")
    assert flapping.ejections == 5 - 3 + 1


def test_a_draining_replica_is_not_ejected() -> None:
    health = healthy()
    health.on_draining(1.0)
    assert health.is_draining and health.state is Health.HEALTHY
    answer(health, 2.0, EngineStatus(state="draining", epoch="e"))
    assert health.is_draining
    answer(health, 3.0, idle("second"))
    assert not health.is_draining


def test_a_late_first_token_asks_for_a_probe_but_not_again_and_again() -> None:
    health = healthy()
    answer(health, 100.0, idle())
    health.on_doubt(101.0)
    assert health.is_probe_due(101.0)
    answer(health, 101.0, busy(1))
    health.on_doubt(101.1)
    assert not health.is_probe_due(101.1)
    assert health.is_probe_due(101.0 + CONFIG.doubt_probe_s)


EVENTS = st.sampled_from(
    (
        *("answer", "busy", "stuck", "miss", "absent", "tokens", "stall", "doubt", "error"),
        *("lost", "success", "draining"),
    )
)


@given(st.lists(st.tuples(EVENTS, st.floats(0.0, 20.0)), max_size=60))
def test_whatever_happens_a_replica_that_answers_is_back_within_bounded_time(
    events: list[tuple[str, float]],
) -> None:
    health = ReplicaHealth(CONFIG, 0.0)
    now_s, steps = 0.0, 0
    for event, pause_s in events:
        now_s += pause_s
        steps += 1
        match event:
            case "answer":
                answer(health, now_s, idle())
            case "busy":
                answer(health, now_s, busy(steps))
            case "stuck":
                answer(health, now_s, busy(0))
            case "miss":
                miss(health, now_s)
            case "absent":
                health.on_absence(now_s, "engine_lost")
            case "tokens":
                health.on_tokens(now_s)
            case "stall":
                health.on_stall(now_s)
            case "doubt":
                health.on_doubt(now_s)
            case "error":
                health.on_error(now_s)
            case "lost":
                health.on_lost(now_s)
            case "success":
                health.on_success()
            case "draining":
                health.on_draining(now_s)
        assert 0.0 < health.share(now_s) <= 1.0
        assert health.next_probe_s <= now_s + CONFIG.ejection_cap_s + CONFIG.probe_timeout_cap_s
    end_s = now_s + CONFIG.ejection_cap_s + CONFIG.probe_timeout_cap_s + 2 * CONFIG.return_s
    while now_s < end_s:
        now_s = max(health.next_probe_s, now_s)
        steps += 1
        answer(health, now_s, busy(steps))
        now_s += 0.1
        health.share(now_s)
    assert health.state is Health.HEALTHY
