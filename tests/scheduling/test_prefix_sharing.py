"""An equal prefix is computed once: found when cached, waited for when under way."""

from typing import Any

import pytest

from steelyard.scheduling.prefix_pending import PendingPrefixes
from steelyard.scheduling.sequence import Sequence

from .paged_model import Driver, compressed, full, request, state, window

PROMPT = list(range(1, 19))  # 18 tokens: four full blocks of 4 and a bit


def finish(driver: Driver, request_id: str, prompt: list[int], **rest: Any) -> int:
    """Run one request to its end; returns its cached tokens."""
    driver.submit(request(request_id, prompt, **rest))
    driver.run_until_idle()
    return driver.usages[request_id].cached_tokens


def test_a_second_request_finds_the_full_blocks_of_the_first() -> None:
    driver = Driver([full(40)])
    assert finish(driver, "cold", PROMPT) == 0
    assert finish(driver, "warm", PROMPT) == 16
    assert driver.computed["warm"][0] == (16, 18)
    driver.check_complete()


def test_a_longer_prompt_hits_as_far_as_it_agrees() -> None:
    driver = Driver([full(40)])
    finish(driver, "cold", PROMPT)
    assert finish(driver, "longer", [*PROMPT[:10], 7, 7, 7, 7, 7]) == 8


def test_the_last_prompt_token_is_always_computed() -> None:
    driver = Driver([full(40)])
    finish(driver, "cold", PROMPT[:16])
    assert finish(driver, "warm", PROMPT[:16]) == 12
    assert driver.computed["warm"][0] == (12, 16)


def test_answers_are_cached_like_prompts() -> None:
    driver = Driver([full(40)])
    finish(driver, "first turn", PROMPT, max_tokens=9, ignore_eos=True)
    conversation = [*PROMPT, *driver.streams["first turn"], 3]
    assert finish(driver, "second turn", conversation) == 24


def test_different_salts_never_share() -> None:
    driver = Driver([full(40)])
    finish(driver, "one", PROMPT, cache_salt="one tenant")
    assert finish(driver, "other", PROMPT, cache_salt="another tenant") == 0
    assert finish(driver, "one again", PROMPT, cache_salt="one tenant") == 16


def test_nothing_is_shared_when_the_prefix_cache_is_off() -> None:
    driver = Driver([full(40)], prefix_cache=False)
    finish(driver, "cold", PROMPT)
    assert finish(driver, "again", PROMPT) == 0
    driver.check_complete()


def test_prefixes_outlive_tails_when_blocks_are_reused() -> None:
    driver = Driver([full(9)])  # eight blocks
    finish(driver, "old", PROMPT, max_tokens=1)
    finish(driver, "other", [9] * 18, max_tokens=1)  # takes the last blank and old's tail blocks
    assert 0 < finish(driver, "old again", PROMPT, max_tokens=1) < 16


def test_four_simultaneous_requests_compute_their_shared_prefix_once() -> None:
    driver = Driver([full(80)], max_step_tokens=30, context_tokens=64)
    shared = list(range(1, 41))
    for number in range(4):
        driver.submit(request(str(number), [*shared, number], max_tokens=3))
    driver.run_until_idle()
    driver.check_complete()
    computed_prefix = [
        token
        for spans in driver.computed.values()
        for start, end in spans
        for token in range(start, min(end, 40))
    ]
    assert sorted(computed_prefix) == list(range(40))
    assert [driver.usages[str(n)].cached_tokens for n in range(4)] == [0, 40, 40, 40]
    assert driver.scheduler.status_counters.admission_holds_total["prefix"] == 3


def test_a_crowd_that_shares_a_prefix_computes_it_once_and_is_looked_at_bit_by_bit() -> None:
    driver = Driver([full(400)], max_step_tokens=100, max_running=64, min_prefill_tokens=1)
    shared = list(range(1, 41))
    for number in range(50):
        driver.submit(request(str(number), [*shared, number], max_tokens=2, ignore_eos=True))
    driver.step()
    assert driver.scheduler.status_counters.admission_holds_total["prefix"] <= 32
    driver.run_until_idle()
    driver.check_complete()
    assert driver.scheduler.status_counters.cached_tokens_total == 49 * 40


def test_a_request_without_that_prefix_passes_those_that_wait_for_it() -> None:
    driver = Driver([full(80)], max_step_tokens=12, step_stretch=float("inf"))
    driver.submit(request("owner", PROMPT))
    driver.submit(request("waiter", PROMPT))
    driver.submit(request("stranger", [30] * 4))
    plan = driver.step()
    assert [piece.sequence.request_id for piece in plan.slices] == ["owner"]
    plan = driver.step()
    assert {piece.sequence.request_id for piece in plan.slices} == {"owner", "stranger"}
    assert [s.request_id for s in driver.scheduler.waiting] == ["waiter"]
    driver.run_until_idle()
    assert driver.usages["waiter"].cached_tokens == 16


def test_a_waiter_computes_the_prefix_itself_when_the_owner_is_aborted() -> None:
    driver = Driver([full(40)], max_step_tokens=8)
    driver.submit(request("owner", PROMPT))
    driver.submit(request("waiter", PROMPT))
    driver.step()
    assert driver.abort("owner")
    driver.step()
    driver.run_until_idle()
    driver.check_complete()
    assert driver.computed["waiter"][0] == (8, 16)
    assert driver.usages["waiter"].cached_tokens == 8


def test_of_several_waiters_only_one_takes_over_from_an_aborted_owner() -> None:
    driver = Driver([full(60)], max_step_tokens=8)
    for name in ("owner", "second", "third"):
        driver.submit(request(name, PROMPT))
    driver.step()
    driver.abort("owner")
    driver.step()
    assert [s.request_id for s in driver.scheduler.running] == ["second"]
    assert [s.request_id for s in driver.scheduler.waiting] == ["third"]
    driver.run_until_idle()
    assert driver.usages["third"].cached_tokens == 16


def test_a_waiter_proceeds_when_the_owner_is_preempted() -> None:
    driver = Driver([full(9)], max_step_tokens=8, context_tokens=32, step_stretch=float("inf"))
    driver.submit(request("first", [20] * 5, max_tokens=20, ignore_eos=True))
    driver.step()
    driver.submit(request("owner", list(range(1, 17)), max_tokens=8, priority=1))
    driver.submit(request("waiter", list(range(1, 17)), max_tokens=8, priority=1))
    driver.run_until_idle()
    driver.check_complete()


@pytest.mark.parametrize("second", ["short", "equal"])
def test_a_waiter_is_not_held_for_a_prefix_it_could_not_use(second: str) -> None:
    driver = Driver([full(40)], max_step_tokens=24, step_stretch=float("inf"))
    prompt = {"short": PROMPT[:3], "equal": PROMPT[:4]}[second]
    driver.submit(request("owner", PROMPT))
    driver.submit(request(second, prompt))
    plan = driver.step()
    assert len(plan.slices) == 2


def test_a_window_group_resumes_where_the_window_before_the_boundary_is_cached() -> None:
    driver = Driver([full(40), window(40, window_tokens=6)], context_tokens=64)
    finish(driver, "cold", list(range(1, 34)), max_tokens=1)
    assert finish(driver, "warm", list(range(1, 34)), max_tokens=1) == 32
    driver.check_complete()


def test_a_hit_needs_the_boundary_in_every_group() -> None:
    # The compressed group's blocks span 8 tokens, so 12 cached tokens serve as 8.
    driver = Driver([full(40), compressed(20, block_tokens=8)])
    finish(driver, "cold", PROMPT[:13], max_tokens=1)
    assert finish(driver, "warm", PROMPT[:13], max_tokens=1) == 8
    driver.check_complete()


def test_a_lost_window_shortens_the_hit_to_the_last_boundary_whose_window_is_there() -> None:
    # Window memory for 5 blocks: while the second prompt runs, it reuses the first one's window.
    driver = Driver([full(60), window(6, window_tokens=6)], max_step_tokens=8)
    finish(driver, "cold", list(range(1, 18)), max_tokens=1)
    finish(driver, "other", [40] * 30, max_tokens=1)
    cached = finish(driver, "warm", list(range(1, 18)), max_tokens=1)
    assert cached < 16
    driver.check_complete()


def test_a_state_is_resumable_only_where_a_slice_ended() -> None:
    driver = Driver([full(60), state(20)], max_step_tokens=9, step_stretch=float("inf"))
    finish(driver, "cold", list(range(1, 24)), max_tokens=1)
    # Slices stop at the last block's end they pass: 8, 16, 20, and then the rest.
    assert [end for _, end in driver.computed["cold"]] == [8, 16, 20, 23]
    assert finish(driver, "warm", list(range(1, 24)), max_tokens=1) == 20
    # 12 of 13 tokens agree, but a state exists at 8.
    assert finish(driver, "shorter", [*range(1, 13), 44], max_tokens=1) == 8
    driver.check_complete()


def test_a_claim_ends_with_its_owner_only() -> None:
    pending = PendingPrefixes()
    owner, late = Sequence(request("owner", [1])), Sequence(request("late", [1]))
    pending.claim(owner, [b"a", b"b"])
    pending.claim(late, [b"b", b"c"])
    pending.withdraw(late, [b"b", b"c"])
    assert b"b" in pending and b"c" not in pending
    pending.settle([b"a"])
    pending.withdraw(owner, [b"a", b"b"])
    assert len(pending) == 0
