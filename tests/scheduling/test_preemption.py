"""When memory runs out the cheapest gives way, keeps its tokens, and nobody is stuck."""

import math
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from steelyard.scheduling.kv_manager import KVManager
from steelyard.scheduling.preemption import choose_victim
from steelyard.scheduling.sequence import Sequence

from .paged_model import Driver, full, request, state, window


def crowded(blocks: int, names: str, **rest: Any) -> Driver:
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


def running_on(kv: KVManager, *asked: tuple[list[int], int, int]) -> list[Sequence]:
    """Sequences of (prompt, computed tokens, priority), in that order of arrival."""
    sequences = []
    for order, (prompt, computed, priority) in enumerate(asked):
        sequence = Sequence(request(str(order), prompt, priority=priority), arrival_order=order)
        kv.admit(sequence, kv.find_prefix(sequence))
        if computed > sequence.computed_tokens:
            assert kv.extend(sequence, computed)
            sequence.computed_tokens = computed
            kv.commit(sequence)
        sequences.append(sequence)
    return sequences


def memory(blocks: int, *, prefix_cache: bool = True) -> KVManager:
    return KVManager(
        [full(blocks)],
        max_running=8,
        context_tokens=64,
        max_step_tokens=64,
        prefix_cache=prefix_cache,
    )


def test_the_victim_is_the_one_that_loses_least_per_freed_block() -> None:
    kv = memory(9)
    # Reusing one block costs the second its 3 tokens of 2 blocks, the third 1 of 3 blocks.
    first, costs_more, costs_less = running_on(
        kv, ([1] * 12, 12, 0), ([2] * 9, 7, 0), ([3] * 9, 9, 0)
    )
    assert kv.preemption_yield(costs_more, [1]) == (2, 3)
    assert kv.preemption_yield(costs_less, [1]) == (3, 1)
    assert choose_victim(kv, [first, costs_more, costs_less], first, end=13) is costs_less


def test_without_a_cache_every_computed_token_is_lost() -> None:
    kv = memory(9, prefix_cache=False)
    _, sequence = running_on(kv, ([1] * 12, 0, 0), ([2] * 9, 0, 0))
    assert kv.extend(sequence, 7)
    sequence.computed_tokens = 7
    assert kv.preemption_yield(sequence, [1]) == (2, 7)


def test_cached_and_shared_blocks_are_no_loss() -> None:
    kv = memory(20)
    prompt = list(range(1, 18))
    owner, sharer = running_on(kv, (prompt, 16, 0), (prompt, 17, 0))
    # Four blocks are shared and stay; its own fifth block holds one token.
    assert kv.preemption_yield(sharer, [1]) == (1, 1)
    assert kv.preemption_yield(owner, [1]) == (0, 0)


def test_a_window_survives_its_part_filled_block_but_no_other() -> None:
    groups = [full(20), window(20, window_tokens=6)]
    kv = KVManager(groups, max_running=1, context_tokens=64, max_step_tokens=64)
    (sequence,) = running_on(kv, ([1] * 12, 9, 0))
    assert kv.preemption_yield(sequence, [0, 1]) == (3, 1)
    assert kv.preemption_yield(sequence, [0, 2]) == (3, 9)


@pytest.mark.parametrize(("computed", "lacking", "lost"), [(8, 0, 0), (8, 1, 8), (9, 0, 9)])
def test_a_state_survives_only_where_it_was_saved(computed: int, lacking: int, lost: int) -> None:
    groups = [full(20), state(20)]
    kv = KVManager(groups, max_running=1, context_tokens=64, max_step_tokens=64)
    (sequence,) = running_on(kv, ([1] * 12, computed, 0))
    assert kv.preemption_yield(sequence, [0, lacking])[1] == lost


def test_among_equals_the_youngest_gives_way() -> None:
    kv = memory(7)
    sequences = running_on(kv, *(([n] * 8, 8, 0) for n in range(1, 4)))
    assert choose_victim(kv, sequences, sequences[1], end=9) is sequences[2]


def test_the_first_in_order_is_no_victim_even_if_it_would_lose_least() -> None:
    kv = memory(5)
    first, needy = running_on(kv, ([1] * 12, 12, 0), ([2] * 3, 3, 0))
    assert choose_victim(kv, [first, needy], needy, end=5) is needy


def test_nobody_gives_way_to_a_less_important_request() -> None:
    kv = memory(8)
    first, cheap, unimportant = running_on(kv, ([1] * 4, 4, 0), ([2] * 16, 16, 0), ([3] * 7, 7, 3))
    order = [first, cheap, unimportant]
    assert choose_victim(kv, order, first, end=5) is cheap
    assert choose_victim(kv, order, unimportant, end=9) is unimportant


def test_sharers_give_way_one_after_the_other_when_none_frees_a_block_alone() -> None:
    kv = memory(5)
    shared = [5] * 9
    needy, one, two = running_on(kv, ([1] * 8, 8, 0), (shared, 8, 0), (shared, 8, 0))
    assert [kv.preemption_yield(s, [1])[0] for s in (one, two)] == [0, 0]
    assert choose_victim(kv, [needy, one, two], needy, end=9) is two
    kv.release(two)
    assert choose_victim(kv, [needy, one, two], needy, end=9) is one


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
