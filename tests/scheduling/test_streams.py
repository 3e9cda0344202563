"""How streams end, go on after a failover, and what their last chunk says."""

from typing import Any

import pytest

from steelyard.contract import TokenLogprobs, Usage
from steelyard.scheduling.step_plan import StepPlan, StepResult

from .paged_model import END_TOKEN, Driver, expected_stream, full, request


def drive(tokens: list[int], **rest: Any) -> Driver:
    """A driver whose only request draws the given tokens one after the other."""
    driver = Driver([full(40)])
    draws = iter(tokens)

    def run(plan: StepPlan) -> StepResult:
        drawn = [next(draws) for piece in plan.slices if piece.samples]
        return StepResult(drawn, [None] * len(drawn), elapsed_s=0.01)

    driver.model.run = run  # type: ignore[method-assign]
    driver.submit(request("r", [1, 2, 3], **rest))
    driver.run_until_idle()
    return driver


def test_max_tokens_ends_a_stream_with_length() -> None:
    driver = drive([7, 8, 9, 10], max_tokens=3)
    assert (driver.streams["r"], driver.reasons["r"]) == ([7, 8, 9], "length")
    assert driver.usages["r"] == Usage(prompt_tokens=3, completion_tokens=3, cached_tokens=0)


def test_the_end_token_stops_a_stream_and_is_its_last_token() -> None:
    driver = drive([7, END_TOKEN, 9], max_tokens=10)
    assert (driver.streams["r"], driver.reasons["r"]) == ([7, END_TOKEN], "stop")
    assert driver.chunks[-1].stop_token_id == END_TOKEN


def test_an_end_token_that_is_also_the_last_allowed_one_counts_as_stop() -> None:
    assert drive([7, END_TOKEN], max_tokens=2).reasons["r"] == "stop"


def test_ignore_eos_goes_on_past_the_end_token() -> None:
    driver = drive([END_TOKEN, 5, END_TOKEN], max_tokens=3, ignore_eos=True)
    assert driver.reasons["r"] == "length"
    assert driver.chunks[-1].stop_token_id is None


def test_stop_token_ids_stop_even_when_end_tokens_are_ignored() -> None:
    driver = drive([END_TOKEN, 5, 6], max_tokens=9, ignore_eos=True, stop_token_ids=(5,))
    assert driver.streams["r"] == [END_TOKEN, 5]


def test_no_stop_token_ends_a_stream_before_min_tokens() -> None:
    driver = drive([5, 5, 5, 8], max_tokens=9, min_tokens=2, stop_token_ids=(5,))
    assert driver.streams["r"] == [5, 5, 5]


def test_only_the_last_chunk_carries_the_reason_and_only_the_first_and_last_usage() -> None:
    driver = drive([7, 8, 9], max_tokens=3)
    assert [chunk.start for chunk in driver.chunks] == [0, 1, 2]
    assert [chunk.finish_reason for chunk in driver.chunks] == [None, None, "length"]
    assert [chunk.usage is None for chunk in driver.chunks] == [False, True, False]


def test_logprobs_travel_with_their_token() -> None:
    driver = Driver([full(40)])
    driver.submit(request("r", [1, 2], max_tokens=2, logprobs=1))
    chunks = []
    for logprob in (-0.5, -0.25):
        plan = driver.plan()
        drawn = [TokenLogprobs(logprob, (7,), (logprob,))]
        outcome = driver.scheduler.apply(plan, StepResult([7], list(drawn), 0.01), 0.0)
        chunks += outcome.chunks
    assert [chunk.logprobs[0].logprob for chunk in chunks if chunk.logprobs] == [-0.5, -0.25]


@pytest.mark.parametrize("emitted", range(1, 8))
def test_a_continued_stream_equals_the_uninterrupted_one(emitted: int) -> None:
    asked = request("r", range(1, 12), max_tokens=8, ignore_eos=True)
    whole, _ = expected_stream(asked)
    driver = Driver([full(40)], max_step_tokens=5)
    driver.submit(
        request(
            "r", range(1, 12), max_tokens=8, ignore_eos=True, emitted_ids=tuple(whole[:emitted])
        )
    )
    driver.run_until_idle()
    driver.check_complete()
    assert driver.chunks[0].start == emitted
    assert driver.usages["r"] == Usage(11, 8, 0)
    assert sum(len(chunk.token_ids) for chunk in driver.chunks) == 8 - emitted


def test_cached_tokens_of_a_continued_stream_count_its_prompt_only() -> None:
    driver = Driver([full(40)])
    driver.submit(request("r", range(1, 7), max_tokens=12, ignore_eos=True))
    driver.run_until_idle()
    emitted = tuple(driver.streams["r"][:6])
    driver.submit(request("s", range(1, 7), max_tokens=12, ignore_eos=True, emitted_ids=emitted))
    driver.run_until_idle()
    assert driver.computed["s"][0][0] == 8
    assert driver.usages["s"].cached_tokens == 6


@pytest.mark.parametrize(("emitted", "reason"), [((7, 8, 9), "length"), ((7, END_TOKEN), "stop")])
def test_a_stream_that_was_complete_ends_without_being_computed(
    emitted: tuple[int, ...], reason: str
) -> None:
    driver = Driver([full(40)])
    driver.submit(request("r", [1, 2], max_tokens=3, emitted_ids=emitted))
    had_work = driver.scheduler.has_work
    plan = driver.step()
    assert plan.is_empty and plan.wake_at_s == 0.0
    assert driver.reasons["r"] == reason
    assert driver.chunks[0].start == len(emitted) and driver.chunks[0].token_ids == ()
    assert driver.usages["r"] == Usage(2, len(emitted), 0)
    assert (had_work, driver.scheduler.has_work) == (True, False)
    assert driver.computed_tokens == 0


def test_an_aborted_request_says_nothing_more_and_frees_its_blocks() -> None:
    driver = Driver([full(40)])
    driver.submit(request("r", range(1, 10), max_tokens=20))
    driver.step()
    assert driver.abort("r")
    assert not driver.abort("r")
    assert driver.scheduler.status_counters.kv_blocks_used == 0
    assert not driver.scheduler.has_work


def test_a_request_aborted_while_its_step_runs_is_dropped_silently() -> None:
    driver = Driver([full(40)])
    driver.submit(request("gone", range(1, 10), max_tokens=20))
    driver.submit(request("stays", range(20, 25), max_tokens=3, ignore_eos=True))
    plan = driver.plan()
    result = driver.model.run(plan)
    driver.abort("gone")
    driver.take(plan, result)
    assert [chunk.request_id for chunk in driver.chunks] == ["stays"]
    driver.run_until_idle()
    driver.check_complete()


def test_an_id_can_be_used_again_once_its_request_is_over() -> None:
    driver = Driver([full(40)])
    for _ in range(2):
        driver.submit(request("r", [1, 2, 3], max_tokens=3, ignore_eos=True))
        plan = driver.plan()
        result = driver.model.run(plan)
        driver.abort("r")
        driver.take(plan, result)
        driver.aborted.clear()
    assert driver.chunks == []
