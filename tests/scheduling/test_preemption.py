"""When memory runs out the cheapest gives way, keeps its tokens, and nobody is stuck."""

import math
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from .paged_model import Driver, full, request, window


def crowded(blocks: int, names: str, **rest: object) -> Driver:
    """Requests of one block each that all grow."""
    driver = Driver([full(blocks)], max_step_tokens=64, step_stretch=math.inf)
    for number, name in enumerate(names):
        driver.submit(request(name, [number + 1] * 3, max_tokens=20, ignore_eos=True, **rest))
    return driver


def test_a_preempted_stream_goes_on_as_if_nothing_had_happened() -> None:
    driver = crowded(8, "abc")
    driver.run_until_idle()
    driver.check_complete()
    assert driver.scheduler.status_counters.preemptions_total > 0


def test_the_first_in_order_is_never_preempted() -> None:
    driver = crowded(7, "abcd")
    driver.step()
    while driver.scheduler.has_work and "a" not in driver.reasons:
        assert driver.scheduler.running[0].request_id == "a"
        driver.step()
    starts = [start for start, _ in driver.computed["a"]]
    assert starts == sorted(set(starts))


def test_a_preempted_request_is_the_next_of_its_priority() -> None:
    driver = crowded(7, "abc")
    driver.submit(request("later", [30] * 3, max_tokens=4))
    driver.submit(request("important", [31] * 23, max_tokens=1, priority=-1))
    while not driver.scheduler.status_counters.preemptions_total:
        driver.step()
    victim = next(s for s in driver.scheduler.waiting if s.preemptions)
    waiting = [s.request_id for s in driver.scheduler.waiting if s.priority == 0]
    assert waiting[0] == victim.request_id


def test_nobody_gives_way_to_a_less_important_request() -> None:
    driver = Driver([full(7)], max_step_tokens=64, step_stretch=math.inf)
    for name, priority in (("a", 0), ("b", 0), ("low", 3)):
        prompt = [ord(name[0]) % 40] * 3
        asked = request(name, prompt, max_tokens=14, ignore_eos=True, priority=priority)
        driver.submit(asked)
    driver.step()
    while "b" not in driver.reasons:
        driver.step()
        assert driver.live("low") if "low" not in driver.reasons else True
    assert driver.asked["b"].priority < driver.asked["low"].priority
    assert [start for start, _ in driver.computed["b"]].count(0) == 1
    driver.run_until_idle()
    driver.check_complete()


def test_the_victim_is_the_one_that_loses_least_per_freed_block() -> None:
    # Without a cache every computed token is lost: 2 tokens in one block are cheaper than 7 in two.
    driver = Driver([full(8)], max_step_tokens=64, step_stretch=math.inf, prefix_cache=False)
    driver.submit(request("first", [1] * 8, max_tokens=12, ignore_eos=True))
    driver.submit(request("dear", [2] * 7, max_tokens=2, ignore_eos=True, min_tokens=2))
    driver.submit(request("cheap", [3] * 2, max_tokens=12, ignore_eos=True))
    driver.step()
    shortage = [1]
    kv = driver.scheduler._kv
    assert kv.preemption_yield(driver.live("dear"), shortage) == (2, 7)
    assert kv.preemption_yield(driver.live("cheap"), shortage) == (1, 2)


def test_cached_and_shared_blocks_count_as_no_loss() -> None:
    driver = Driver([full(40)], max_step_tokens=64, step_stretch=math.inf)
    prompt = list(range(1, 18))
    driver.submit(request("owner", prompt, max_tokens=12, ignore_eos=True))
    driver.step()
    driver.submit(request("sharer", prompt, max_tokens=12, ignore_eos=True))
    driver.step()
    kv = driver.scheduler._kv
    # Four shared blocks stay; its own last block holds one computed token.
    assert kv.preemption_yield(driver.live("sharer"), [1]) == (1, 1)
    assert kv.preemption_yield(driver.live("owner"), [1]) == (1, 2)


def test_a_victim_finds_what_is_left_of_its_blocks_when_it_returns() -> None:
    driver = crowded(8, "abc")
    driver.run_until_idle()
    resumed = [
        start
        for spans in driver.computed.values()
        for (_, end), (start, _) in pairwise(spans)
        if start != end
    ]
    assert resumed and max(resumed) > 0


def test_recomputation_is_no_cache_hit_but_is_computed_work() -> None:
    driver = crowded(8, "abc")
    driver.run_until_idle()
    counters = driver.scheduler.status_counters
    assert counters.preemptions_total > 0
    assert counters.cached_tokens_total == 0
    assert counters.prompt_tokens_total == 9
    assert all(usage.cached_tokens == 0 for usage in driver.usages.values())
    needed_once = sum(len(a.prompt_ids) + a.sampling.max_tokens - 1 for a in driver.asked.values())
    assert counters.computed_tokens_total > needed_once


@pytest.mark.parametrize("prefix_cache", [True, False])
@settings(max_examples=60, deadline=None)
@given(
    asks=st.lists(
        st.tuples(st.integers(1, 20), st.integers(1, 20), st.integers(0, 2)),
        min_size=2,
        max_size=12,
    ),
    blocks=st.integers(11, 14),
    step_tokens=st.integers(3, 40),
    windowed=st.booleans(),
)
def test_no_workload_is_stuck_however_small_the_pool(
    prefix_cache: bool,
    asks: list[tuple[int, int, int]],
    blocks: int,
    step_tokens: int,
    windowed: bool,
) -> None:
    # The driver asserts on every step that the first in order advances; so the bound below is
    # the sum of what each needs while it is first.
    groups = [full(blocks), window(5, window_tokens=6)] if windowed else [full(blocks)]
    driver = Driver(groups, max_step_tokens=step_tokens, max_running=6, prefix_cache=prefix_cache)
    for number, (prompt_tokens, max_tokens, priority) in enumerate(asks):
        prompt = [number + 1] * prompt_tokens
        driver.submit(request(str(number), prompt, max_tokens, priority=priority))
    steps = driver.run_until_idle(limit=sum(p + m for p, m, _ in asks) + 1)
    assert steps >= 1
    driver.check_complete()
