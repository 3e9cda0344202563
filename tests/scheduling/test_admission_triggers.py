"""min_batch, max_wait and memory_threshold, under virtual time: what each delays, and what not."""

from typing import Any

import pytest

from steelyard.contract import VirtualClock
from steelyard.scheduling.admission import Admission
from steelyard.scheduling.config import KVGroup, SchedulerConfig
from steelyard.scheduling.sequence import Sequence

from .paged_model import Driver, full, request, state, window


class TimedDriver(Driver):
    """A driver whose time is a virtual clock; every step takes 10 ms."""

    def __init__(
        self, blocks: int = 80, groups: list[KVGroup] | None = None, **settings: Any
    ) -> None:
        super().__init__(groups or [full(blocks)], **settings)
        self.clock = VirtualClock()

    def let_pass(self, duration_s: float) -> None:
        self.clock.jump(duration_s)
        self.now_s = self.clock.now()

    def ask(self, name: str, prompt_tokens: int = 4, max_tokens: int = 40) -> None:
        prompt = [ord(name[0]) % 40] * prompt_tokens
        self.submit(request(name, prompt, max_tokens, ignore_eos=True))

    def names_running(self) -> list[str]:
        return [s.request_id for s in self.scheduler.running]

    def tick(self) -> None:
        self.apply(self.plan())
        self.let_pass(0.01)

    def holds(self, cause: str) -> int:
        return self.scheduler.status_counters.admission_holds_total[cause]


def test_min_batch_holds_prefill_until_enough_requests_wait() -> None:
    driver = TimedDriver(min_batch=3, max_wait_s=10.0)
    driver.ask("a")
    driver.tick()
    driver.ask("b")
    driver.ask("c")
    for _ in range(20):
        driver.tick()
    assert driver.names_running() == ["a"]
    driver.ask("d")
    driver.tick()
    assert driver.names_running() == ["a", "b", "c", "d"]
    assert driver.holds("min_batch") == 2


def test_max_wait_ends_the_hold_and_takes_everybody_along() -> None:
    driver = TimedDriver(min_batch=5, max_wait_s=0.050)
    driver.ask("a")
    driver.tick()
    driver.ask("b")
    driver.let_pass(0.030)
    driver.ask("c")
    driver.tick()
    assert driver.names_running() == ["a"]
    driver.let_pass(0.010)
    driver.tick()  # b has waited for exactly 50 ms
    assert driver.names_running() == ["a", "b", "c"]


@pytest.mark.parametrize("settings", [{"min_batch": 4}, {"min_batch": 1, "max_wait_s": 9.0}])
def test_either_setting_alone_holds_nothing(settings: dict[str, Any]) -> None:
    driver = TimedDriver(**settings)
    driver.ask("a")
    driver.tick()
    driver.ask("b")
    driver.tick()
    assert driver.names_running() == ["a", "b"]


def test_an_idle_engine_starts_a_request_at_once() -> None:
    driver = TimedDriver(min_batch=8, max_wait_s=60.0, memory_threshold=0.01)
    driver.ask("a", prompt_tokens=20)
    driver.tick()
    assert driver.names_running() == ["a"]


def test_prefill_alone_does_not_hold_prefill_back() -> None:
    # min_batch protects streams; while none runs there is nothing to protect.
    driver = TimedDriver(min_batch=8, max_wait_s=60.0, max_step_tokens=10, min_prefill_tokens=1)
    driver.ask("a", prompt_tokens=18)
    driver.tick()
    driver.ask("b")
    driver.tick()
    assert driver.names_running() == ["a", "b"]


def test_memory_threshold_holds_what_would_take_the_used_share_past_it() -> None:
    driver = TimedDriver(blocks=21, memory_threshold=0.5)  # 20 blocks of 4 tokens
    driver.ask("a", prompt_tokens=15, max_tokens=2)
    driver.tick()
    driver.ask("b", prompt_tokens=25, max_tokens=2)  # 4 + 7 blocks are more than 10
    driver.tick()
    assert driver.names_running() == []  # a is done with its second token
    driver.tick()
    assert driver.names_running() == ["b"]
    assert driver.holds("memory") == 1


def test_memory_threshold_admits_up_to_exactly_its_share() -> None:
    driver = TimedDriver(blocks=21, memory_threshold=0.5)
    driver.ask("a", prompt_tokens=15)
    driver.ask("b", prompt_tokens=24)
    driver.tick()
    assert driver.names_running() == ["a", "b"]  # 4 + 6 blocks


def test_memory_threshold_counts_what_prompts_under_way_still_need() -> None:
    driver = TimedDriver(groups=[full(21), state(9)], memory_threshold=0.8, max_step_tokens=64)
    driver.ask("a", prompt_tokens=41, max_tokens=9)
    driver.ask("b", prompt_tokens=24, max_tokens=9)
    driver.tick()
    # a's slice ends at 40, a block's end: 10 of 20 blocks are taken, an 11th will be. With the
    # 6 that b needs, that makes 17 where 16 are allowed.
    assert driver.names_running() == ["a"]
    assert driver.holds("memory") == 1
    driver.ask("c", prompt_tokens=20, max_tokens=9)
    driver.abort("b")
    driver.tick()
    assert driver.names_running() == ["a", "c"]


def test_memory_threshold_counts_it_also_for_prompts_of_earlier_steps() -> None:
    groups = [full(41), state(9)]
    driver = TimedDriver(
        groups=groups, memory_threshold=0.8, max_step_tokens=64, context_tokens=128
    )
    driver.ask("a", prompt_tokens=81, max_tokens=9)
    driver.tick()
    driver.ask("b", prompt_tokens=48, max_tokens=9)
    driver.tick()  # a is at 80 of 81: 20 blocks and one to come, 12 for b, 32 allowed
    assert driver.names_running() == ["a"]
    assert driver.holds("memory") == 1


def test_a_cached_prefix_in_use_costs_no_memory_at_admission() -> None:
    driver = TimedDriver(blocks=21, memory_threshold=0.5)
    prompt = list(range(1, 34))
    driver.submit(request("a", prompt, 20, ignore_eos=True))
    driver.tick()
    driver.submit(request("b", prompt, 20, ignore_eos=True))
    driver.tick()  # shares 8 of a's 9 blocks and needs one of its own
    assert driver.names_running() == ["a", "b"]


def test_a_large_request_at_the_head_is_not_overtaken_by_small_ones_for_ever() -> None:
    driver = TimedDriver(blocks=21, memory_threshold=0.5)
    driver.ask("a", prompt_tokens=20, max_tokens=10)
    driver.tick()
    driver.ask("large", prompt_tokens=44, max_tokens=4)
    for name in "bcdefgh":
        driver.ask(name, prompt_tokens=4, max_tokens=10)
    while "large" not in driver.names_running():
        driver.tick()
        assert not set(driver.names_running()) - {"a", "large"}


def test_a_hold_is_counted_once_until_its_cause_changes() -> None:
    driver = TimedDriver(max_running=1)
    driver.ask("a", max_tokens=30)
    driver.tick()
    driver.ask("b")
    for _ in range(10):
        driver.tick()
    assert driver.holds("slots") == 1


def test_a_preempted_stream_does_not_wait_for_a_batch() -> None:
    admission = Admission(SchedulerConfig(min_batch=4, max_wait_s=60.0))
    fresh, preempted = Sequence(request("fresh", [1])), Sequence(request("preempted", [2]))
    preempted.preemptions = 1
    assert admission.awaits_batch([fresh], decode_tokens=1, now_s=0.0)
    assert not admission.awaits_batch([fresh, preempted], decode_tokens=1, now_s=0.0)


def test_a_long_prompt_counts_with_the_blocks_its_window_holds_at_once() -> None:
    driver = TimedDriver(groups=[window(10, 6)], memory_threshold=0.9, max_step_tokens=8)
    driver.ask("a", prompt_tokens=40, max_tokens=20)
    for _ in range(6):
        driver.tick()
    driver.ask("b", prompt_tokens=40, max_tokens=20)  # 10 columns, but never more than 5 blocks
    driver.tick()
    assert driver.names_running() == ["a", "b"]
