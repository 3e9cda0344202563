"""Counters add up, and say what `EngineStatus` says they mean."""

from dataclasses import asdict

from steelyard.contract import EngineStatus
from steelyard.contract.errors import EngineFailed

from .paged_model import Driver, full, request, window


def test_the_counters_fill_an_engine_status() -> None:
    driver = Driver([full(40)])
    driver.submit(request("r", range(1, 10), max_tokens=3, ignore_eos=True))
    driver.step()
    status = EngineStatus(state="ready", **asdict(driver.scheduler.status_counters))
    assert (status.running, status.waiting, status.steps_total) == (1, 0, 1)
    assert (status.kv_blocks_used, status.kv_blocks_total) == (3, 39)
    assert status.step_time_s == 0.01
    assert all(type(cause) is str for cause in status.admission_holds_total)


def test_prompt_tokens_are_cached_or_computed() -> None:
    driver = Driver([full(60)])
    for number in range(5):
        prompt = [*range(1, 12 + number), number]
        driver.submit(request(str(number), prompt, max_tokens=3, ignore_eos=True))
        driver.run_until_idle()
    counters = driver.scheduler.status_counters
    decoded = sum(len(stream) - 1 for stream in driver.streams.values())
    assert counters.cached_tokens_total > 0
    assert counters.prompt_tokens_total == (
        counters.cached_tokens_total + counters.computed_tokens_total - decoded
    )
    assert counters.produced_tokens_total == sum(map(len, driver.streams.values()))


def test_every_request_is_counted_once_by_how_it_ended() -> None:
    driver = Driver([full(60)])
    for name in ("finished", "aborted", "failed"):
        driver.submit(request(name, [1, 2, 3], max_tokens=5, ignore_eos=True))
        plan = driver.plan()
        if name == "aborted":
            driver.abort(name)
        elif name == "failed":
            driver.scheduler.fail(plan, EngineFailed("a test"))
        driver.run_until_idle()
    counters = driver.scheduler.status_counters
    assert (counters.finished_total, counters.aborted_total, counters.failed_total) == (1, 1, 1)
    assert isinstance(driver.failures["failed"], EngineFailed)


def test_blocks_in_use_are_counted_over_all_groups_and_cached_ones_are_free() -> None:
    driver = Driver([full(20), window(10, window_tokens=5)])
    driver.submit(request("r", range(1, 10), max_tokens=4, ignore_eos=True))
    driver.step()
    assert driver.scheduler.status_counters.kv_blocks_used == 3 + 3
    assert driver.scheduler.status_counters.kv_blocks_total == 19 + 9
    driver.run_until_idle()
    assert driver.scheduler.status_counters.kv_blocks_used == 0


def test_a_snapshot_does_not_change_afterwards() -> None:
    driver = Driver([full(20)])
    before = driver.scheduler.status_counters
    driver.submit(request("r", [1, 2, 3], max_tokens=2))
    driver.run_until_idle()
    assert before.steps_total == 0 and before.finished_total == 0
    assert driver.scheduler.status_counters.steps_total == 2
