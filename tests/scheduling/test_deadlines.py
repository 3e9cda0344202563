"""A request past its deadline is failed and costs nothing more."""

from steelyard.contract.errors import DeadlineExceeded

from .paged_model import Driver, full, request


def test_a_request_late_in_the_queue_never_reaches_the_runner() -> None:
    driver = Driver([full(40)], max_running=1)
    driver.submit(request("running", [1] * 4, max_tokens=30, ignore_eos=True))
    driver.step()
    driver.submit(request("late", [2] * 4, deadline_s=0.05))
    driver.run_until_idle()
    assert isinstance(driver.failures["late"], DeadlineExceeded)
    assert driver.computed["late"] == []
    assert driver.scheduler.status_counters.failed_total == 1
    driver.check_complete()


def test_a_lone_late_request_is_reported_by_an_empty_step() -> None:
    driver = Driver([full(40)])
    driver.submit(request("late", [2] * 4, deadline_s=0.5))
    driver.now_s = 0.5
    plan = driver.step()
    assert plan.is_empty
    assert list(driver.failures) == ["late"]
    assert not driver.scheduler.has_work


def test_a_running_stream_ends_at_its_deadline_and_frees_its_blocks() -> None:
    driver = Driver([full(40)])
    driver.submit(request("r", [2] * 4, max_tokens=50, deadline_s=0.055, ignore_eos=True))
    driver.run_until_idle()
    assert isinstance(driver.failures["r"], DeadlineExceeded)
    assert 0 < len(driver.streams["r"]) < 10
    driver.check_complete()


def test_a_deadline_does_not_outlive_its_request() -> None:
    driver = Driver([full(40)])
    driver.submit(request("r", [2] * 4, max_tokens=1, deadline_s=1.0))
    driver.run_until_idle()
    driver.reasons.clear()
    driver.submit(request("r", [2] * 4, max_tokens=1))
    driver.now_s = 2.0
    driver.run_until_idle()
    assert driver.failures == {}


def test_a_deadline_that_comes_while_a_step_runs_is_reported_with_that_step() -> None:
    driver = Driver([full(40)])
    driver.submit(request("r", [2] * 4, max_tokens=9, deadline_s=1.0, ignore_eos=True))
    plan = driver.plan()
    result = driver.model.run(plan)
    driver.now_s = 1.0
    driver.take(plan, result)
    assert len(driver.streams["r"]) == 1
    assert list(driver.failures) == ["r"]
    assert not driver.scheduler.has_work
