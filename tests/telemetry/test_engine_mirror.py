"""The counters of an engine go on rising when its process is replaced."""

from hypothesis import given, settings
from hypothesis import strategies as st

from steelyard.contract import EngineStatus
from steelyard.telemetry import Metrics

from .conftest import Scrape


def test_a_snapshot_becomes_gauges_and_counters(metrics: Metrics) -> None:
    metrics.observe_engine(
        EngineStatus(
            state="ready",
            epoch="a",
            running=3,
            waiting=2,
            kv_blocks_used=25,
            kv_blocks_total=100,
            step_time_s=0.02,
            steps_total=7,
            prompt_tokens_total=50,
            cached_tokens_total=20,
            computed_tokens_total=40,
            produced_tokens_total=10,
            preemptions_total=1,
            finished_total=4,
            aborted_total=2,
            failed_total=1,
            admission_holds_total={"memory": 5, "min_batch": 6},
        )
    )
    scrape = Scrape(metrics)
    expected = {
        "engine_up": 1,
        "engine_running": 3,
        "engine_waiting": 2,
        "engine_kv_blocks": 100,
        "engine_kv_blocks_used": 25,
        "engine_kv_used_ratio": 0.25,
        "engine_step_seconds": 0.02,
        "engine_steps_total": 7,
        "engine_prompt_tokens_total": 50,
        "engine_cached_tokens_total": 20,
        "engine_computed_tokens_total": 40,
        "engine_produced_tokens_total": 10,
        "engine_preemptions_total": 1,
        "engine_requests_ended_total": 7,
        "engine_restarts_total": 0,
    }
    assert {name: scrape.value(name, replica="0") for name in expected} == expected
    assert scrape.value("engine_requests_ended_total", outcome="aborted") == 2
    assert scrape.value("engine_admission_holds_total", cause="memory") == 5


def test_exactly_one_state_is_true(metrics: Metrics) -> None:
    for state, up in {"starting": 0, "ready": 1, "draining": 1, "lost": 0}.items():
        metrics.observe_engine(EngineStatus(state=state, epoch="a"))  # type: ignore[arg-type]
        scrape = Scrape(metrics)
        assert scrape.value("engine_state") == scrape.value("engine_state", state=state) == 1
        assert scrape.value("engine_up") == up


def test_a_restart_adds_to_what_was_counted_before(metrics: Metrics) -> None:
    metrics.observe_engine(EngineStatus(state="ready", epoch="a", produced_tokens_total=100))
    metrics.observe_engine(EngineStatus(state="lost"))
    metrics.observe_engine(EngineStatus(state="ready", epoch="b", produced_tokens_total=7))
    scrape = Scrape(metrics)
    assert scrape.value("engine_produced_tokens_total") == 107
    assert scrape.value("engine_restarts_total") == 1


def test_a_late_snapshot_of_a_replaced_process_is_ignored(metrics: Metrics) -> None:
    metrics.observe_engine(EngineStatus(state="ready", epoch="a", steps_total=100))
    metrics.observe_engine(EngineStatus(state="ready", epoch="b", steps_total=5, running=1))
    metrics.observe_engine(EngineStatus(state="ready", epoch="a", steps_total=120, running=9))
    scrape = Scrape(metrics)
    assert scrape.value("engine_steps_total") == 105
    assert scrape.value("engine_running") == 1
    assert scrape.value("engine_restarts_total") == 1


def test_replicas_are_kept_apart(metrics: Metrics) -> None:
    metrics.observe_engine(EngineStatus(state="ready", epoch="a", steps_total=1), replica="0")
    metrics.observe_engine(EngineStatus(state="ready", epoch="b", steps_total=2), replica="1")
    scrape = Scrape(metrics)
    assert scrape.value("engine_steps_total", replica="0") == 1
    assert scrape.value("engine_steps_total", replica="1") == 2
    assert scrape.value("engine_restarts_total") == 0


@given(st.lists(st.lists(st.integers(min_value=0, max_value=9), max_size=6), max_size=6))
@settings(max_examples=40)
def test_counters_never_fall_and_equal_the_sum_over_processes(runs: list[list[int]]) -> None:
    metrics = Metrics()
    expected, former = 0, 0.0
    for number, growths in enumerate(runs):
        counted = 0
        for growth in growths:
            counted += growth
            status = EngineStatus(state="ready", epoch=f"e{number}", steps_total=counted)
            metrics.observe_engine(status)
            value = Scrape(metrics).value("engine_steps_total")
            assert value >= former
            former = value
        expected += counted
    assert Scrape(metrics).value("engine_steps_total") == expected
