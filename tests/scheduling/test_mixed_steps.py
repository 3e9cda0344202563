"""One flat batch: decodes first, then prompts in chunks that fit tokens, time and memory."""

import math
from typing import Any

from steelyard.scheduling.step_plan import StepPlan

from .paged_model import Driver, full, request, state, window


def shape(plan: StepPlan) -> list[tuple[str, int, int, bool]]:
    return [(p.sequence.request_id, p.start, p.count, p.samples) for p in plan.slices]


def decoding(count: int, **settings: Any) -> Driver:
    """A driver with `count` streams named 0, 1, … that decode."""
    driver = Driver([full(400)], **{"context_tokens": 128, **settings})
    for number in range(count):
        driver.submit(request(str(number), [number + 1, 2], max_tokens=60, ignore_eos=True))
    while driver.scheduler.waiting or any(s.computed_tokens < 2 for s in driver.scheduler.running):
        driver.step()
    return driver


def test_a_prompt_is_computed_in_chunks_and_samples_with_the_last() -> None:
    driver = Driver([full(40)], max_step_tokens=8)
    driver.submit(request("a", range(1, 19)))
    assert shape(driver.step()) == [("a", 0, 8, False)]
    assert shape(driver.step()) == [("a", 8, 8, False)]
    assert shape(driver.step()) == [("a", 16, 2, True)]
    assert shape(driver.step()) == [("a", 18, 1, True)]


def test_several_prompts_share_a_step() -> None:
    driver = Driver([full(40)], max_step_tokens=16, min_prefill_tokens=1)
    driver.submit(request("a", [1, 2, 3, 4, 5]))
    driver.submit(request("b", [6, 7, 8, 9, 10, 11]))
    driver.submit(request("c", [12] * 9))
    plan = driver.step()
    assert shape(plan) == [("a", 0, 5, True), ("b", 0, 6, True), ("c", 0, 5, False)]
    assert (plan.decode_tokens, plan.prefill_tokens) == (0, 16)


def test_streams_come_first_and_all_of_them_advance_in_every_step() -> None:
    driver = decoding(3, max_step_tokens=10, step_stretch=math.inf)
    driver.submit(request("p", range(20, 60)))
    plan = driver.step()
    assert [p.sequence.request_id for p in plan.slices] == ["0", "1", "2", "p"]
    assert (plan.decode_tokens, plan.prefill_tokens) == (3, 7)


def test_a_prompt_under_way_comes_before_new_ones() -> None:
    driver = Driver([full(80)], max_step_tokens=10)
    driver.submit(request("long", range(1, 36)))
    driver.step()
    driver.submit(request("urgent", [40] * 5, priority=-1))
    assert shape(driver.step()) == [("long", 10, 10, False)]


def test_waiting_requests_start_by_priority_and_then_by_arrival() -> None:
    driver = Driver([full(40)], max_step_tokens=8, max_running=1)
    driver.submit(request("running", [9] * 8, max_tokens=1))
    driver.step()
    for name, priority in (("low", 5), ("first", 0), ("second", 0), ("high", -1)):
        driver.submit(request(name, [1], max_tokens=1, priority=priority))
    started = [shape(driver.step())[0][0] for _ in range(4)]
    assert started == ["high", "first", "second", "low"]


def test_prefill_beside_streams_stays_within_the_predicted_stretch() -> None:
    driver = decoding(4, max_step_tokens=100, step_stretch=3.0, min_prefill_tokens=1)
    driver.submit(request("p", range(1, 101)))
    plan = driver.plan()
    cost = driver.scheduler.cost
    decode_attended = sum(p.start + 1 for p in plan.slices if p.sequence.request_id != "p")
    alone_s = cost.predict_s(decode_tokens=4, attended_tokens=decode_attended)
    with_prefill_s = cost.predict_s(
        decode_tokens=4,
        prefill_tokens=plan.prefill_tokens,
        attended_tokens=plan.attended_tokens,
    )
    assert 1 < plan.prefill_tokens < 96
    assert with_prefill_s <= 3.0 * alone_s * (1 + 1e-9)


def test_prefill_advances_by_its_minimum_however_tight_the_stretch() -> None:
    driver = decoding(4, max_step_tokens=100, step_stretch=1.0, min_prefill_tokens=6)
    driver.submit(request("p", range(1, 51)))
    driver.submit(request("q", range(51, 80)))
    # Together, not each: the second prompt has to wait.
    assert [driver.step().prefill_tokens for _ in range(3)] == [6, 6, 6]
    assert driver.scheduler.status_counters.admission_holds_total["tokens"] == 1


def test_without_streams_a_prompt_takes_the_whole_step() -> None:
    driver = Driver([full(40)], max_step_tokens=64, step_stretch=1.0)
    driver.submit(request("p", range(1, 51)))
    assert driver.step().prefill_tokens == 50


def test_a_request_is_not_started_for_a_crumb_of_the_budget() -> None:
    driver = Driver([full(40)], max_step_tokens=16, min_prefill_tokens=8)
    driver.submit(request("a", [1] * 12))
    driver.submit(request("b", [2] * 12))
    assert [name for name, *_ in shape(driver.step())] == ["a"]
    assert [name for name, *_ in shape(driver.step())] == ["a", "b"]


def test_attention_work_counts_the_tokens_that_each_token_sees() -> None:
    driver = Driver([full(40)], max_step_tokens=8)
    driver.submit(request("a", range(1, 13)))
    assert driver.step().attended_tokens == sum(range(1, 9))
    assert driver.step().attended_tokens == 9 + 10 + 11 + 12
    assert driver.step().attended_tokens == 13


def test_attention_work_of_windows_alone_is_bounded_by_the_window() -> None:
    driver = Driver([window(40, window_tokens=5)], max_step_tokens=8)
    driver.submit(request("a", range(1, 10)))
    assert driver.step().attended_tokens == 1 + 2 + 3 + 4 + 5 * 4
    assert driver.step().attended_tokens == 5
    assert driver.step().attended_tokens == 5


def test_a_chunk_shrinks_to_the_memory_there_is() -> None:
    # Seven blocks; the first request has three, and grows into a fourth later.
    driver = Driver([full(8)], max_step_tokens=32, step_stretch=math.inf)
    driver.submit(request("a", range(1, 11), max_tokens=8, ignore_eos=True))
    driver.step()
    driver.submit(request("b", range(20, 36), max_tokens=4, ignore_eos=True))
    plan = driver.step()
    assert ("b", 0, 16, True) in shape(plan)
    driver.run_until_idle()
    driver.check_complete()


def test_more_streams_than_step_tokens_are_never_admitted() -> None:
    driver = Driver([full(80)], max_running=50, max_step_tokens=3)
    for number in range(6):
        driver.submit(request(str(number), [number + 1] * 2, max_tokens=9, ignore_eos=True))
    while driver.scheduler.has_work:
        driver.step()
        assert len(driver.scheduler.running) <= 3
    assert driver.scheduler.status_counters.admission_holds_total["slots"] > 0
    driver.check_complete()


def test_a_plan_that_is_not_applied_loses_nothing() -> None:
    driver = Driver([full(40)], max_step_tokens=8)
    driver.submit(request("a", range(1, 19)))
    first = shape(driver.plan())
    assert shape(driver.plan()) == first
    driver.run_until_idle()
    driver.check_complete()


def test_slices_of_models_with_state_stop_at_block_ends() -> None:
    driver = Driver([full(40), state(20)], max_step_tokens=11)
    driver.submit(request("a", range(1, 18), max_tokens=1))
    spans = []
    while driver.scheduler.has_work:
        spans += [(start, start + count) for _, start, count, _ in shape(driver.step())]
    assert spans == [(0, 8), (8, 16), (16, 17)]
