"""What is refused at the door, and with which class: callers decide by it."""

import pytest

from steelyard.contract import GenerateRequest
from steelyard.contract.errors import (
    ContextTooLong,
    InvalidRequest,
    Overloaded,
    Retry,
    SettingsError,
)
from steelyard.scheduling.config import GroupKind, KVGroup, SchedulerConfig

from .paged_model import Driver, compressed, full, request, state, window


@pytest.mark.parametrize(
    ("asked", "param"),
    [
        (request("r", []), "prompt_ids"),
        (request("r", [-1]), "prompt_ids"),
        (request("r", [2**31]), "prompt_ids"),
        (request("r", [1], emitted_ids=(2**40,)), "emitted_ids"),
        (request("r", [1], max_tokens=0), "max_tokens"),
        (request("taken", [1]), "request_id"),
    ],
)
def test_malformed_requests_are_refused_by_name(asked: GenerateRequest, param: str) -> None:
    driver = Driver([full(40)])
    driver.submit(request("taken", [1]))
    with pytest.raises(InvalidRequest) as refused:
        driver.scheduler.submit(asked, 0.0)
    assert refused.value.param == param
    driver.run_until_idle()


def test_prompt_and_output_may_fill_the_context_exactly() -> None:
    driver = Driver([full(40)], context_tokens=20)
    driver.submit(request("fits", [1] * 15, max_tokens=5, ignore_eos=True))
    with pytest.raises(ContextTooLong) as refused:
        driver.submit(request("too long", [1] * 15, max_tokens=6))
    assert refused.value.retry is Retry.NEVER
    driver.run_until_idle()
    driver.check_complete()


@pytest.mark.parametrize(
    ("groups", "largest"),
    [
        ([full(6)], 21),  # five blocks of 4; the last token's KV is never needed
        ([full(40), compressed(3)], 17),
        ([full(6), window(3, window_tokens=4)], 21),
        ([full(40), state(3)], 64),
    ],
)
def test_the_largest_request_that_fits_alone_runs_and_one_more_token_is_refused(
    groups: list[KVGroup], largest: int
) -> None:
    driver = Driver(groups, max_step_tokens=16)
    driver.submit(request("fits", [1] * 9, max_tokens=largest - 9, ignore_eos=True))
    driver.submit(request("too", [2] * 9, max_tokens=largest - 9, ignore_eos=True))
    driver.run_until_idle()
    driver.check_complete()
    if largest < driver.config.context_tokens:
        with pytest.raises(ContextTooLong):
            driver.submit(request("too large", [1] * 9, max_tokens=largest - 8))


def test_a_window_that_does_not_fit_is_refused_and_not_stuck() -> None:
    driver = Driver([full(40), window(2, window_tokens=4)])
    with pytest.raises(ContextTooLong, match="window"):
        driver.submit(request("r", [1] * 9))


def test_a_full_queue_asks_to_come_back_after_as_long_as_its_head_has_waited() -> None:
    driver = Driver([full(40)], max_running=1, max_waiting=2)
    driver.submit(request("running", [1] * 4, max_tokens=40, ignore_eos=True))
    driver.step()
    driver.now_s = 100.0
    driver.submit(request("b", [2]))
    driver.submit(request("c", [3]))
    for waited_s, delay_s in ((0.1, 1.0), (7.0, 7.0), (1000.0, 60.0)):
        driver.now_s = 100.0 + waited_s
        with pytest.raises(Overloaded) as refused:
            driver.submit(request("d", [4]))
        assert refused.value.delay_s == pytest.approx(delay_s)
    assert "d" not in driver.asked
    driver.run_until_idle()
    driver.check_complete()


@pytest.mark.parametrize(
    "settings",
    [
        {"max_running": 0},
        {"max_step_tokens": 0},
        {"max_waiting": 0},
        {"memory_threshold": 0.0},
        {"memory_threshold": 1.5},
        {"step_stretch": 0.9},
        {"max_wait_s": -1.0},
        {"context_tokens": 1},
    ],
)
def test_settings_that_cannot_work_name_their_key(settings: dict[str, float]) -> None:
    with pytest.raises(SettingsError) as refused:
        SchedulerConfig(**settings)  # type: ignore[arg-type]
    assert refused.value.param == next(iter(settings))


def test_a_group_without_a_usable_block_is_refused() -> None:
    with pytest.raises(SettingsError):
        KVGroup("full", GroupKind.FULL, 16, blocks=1)
