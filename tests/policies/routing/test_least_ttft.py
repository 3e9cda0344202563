"""Where requests go: known prompts home, unknown ones everywhere, nobody too much."""

import random
import time
from collections import Counter

import pytest

from .targets import give, joined, least_ttft, trip


def test_a_known_prompt_goes_where_it_is_known() -> None:
    policy = least_ttft()
    pool = joined(policy, 4)
    home = give(policy, pool, trip(*range(50)))
    for now_s in range(3):
        assert give(policy, pool, trip(*range(50), 100 + now_s), now_s) is home


def test_prompts_that_nobody_knows_are_spread_even_one_at_a_time() -> None:
    """At low concurrency every replica is idle: none must get them all."""
    policy = least_ttft()
    pool = joined(policy, 4)
    counts: Counter[int] = Counter()
    for number in range(400):
        target = policy.pick(request := trip(1000 + number, 2000 + number), pool, float(number))
        assert target is not None
        policy.note_sent(request, target, float(number))
        load = target.begin(float(number), new_tokens=128, held_tokens=128)
        # One replica is a little faster than the others, which must not make it get everything.
        ttft_s = 0.010 if target.index == 2 else 0.0102
        target.first_token(load, number + ttft_s, computed_tokens=None)
        target.end(load, number + 0.5, has_finished=True)
        counts[target.index] += 1
    assert max(counts.values()) <= 1.3 * 100


def test_a_hot_prompt_is_given_to_others_once_its_home_has_more_than_its_share() -> None:
    policy = least_ttft(imbalance=1.25)
    pool = joined(policy, 4)
    work: Counter[int] = Counter()
    for number in range(2000):
        target = give(policy, pool, trip(*range(20), 1000 + number, output_tokens=50), number / 50)
        work[target.index] += 1
    assert len(work) == 4
    assert max(work.values()) <= 1.35 * 500


def test_imbalance_takes_away_affinity_from_the_overloaded_alone() -> None:
    """Under imbalance, prompts known to replicas with room still go to those."""
    policy = least_ttft()
    pool = joined(policy, 4)
    homes = {name: give(policy, pool, trip(*[name] * 40)) for name in range(4)}
    assert len(set(homes.values())) == 4
    hot = homes[0]
    for number in range(200):
        give(policy, pool, trip(*[0] * 40, 500 + number), 1.0)
    for name in (1, 2, 3):
        assert give(policy, pool, trip(*[name] * 40), 2.0) is homes[name]
    assert hot is homes[0]


def test_a_busy_home_loses_to_an_idle_stranger_when_the_queue_costs_more_than_the_prefix() -> None:
    policy = least_ttft()
    pool = joined(policy, 2)
    home = give(policy, pool, trip(*range(4)))
    assert give(policy, pool, trip(*range(4)), 1.0) is home
    home.begin(1.0, new_tokens=100_000, held_tokens=0)
    assert give(policy, pool, trip(*range(4)), 1.0) is not home


def test_a_replica_that_answers_nobody_is_avoided() -> None:
    policy = least_ttft()
    pool = joined(policy, 3)
    home = give(policy, pool, trip(*range(30)))
    home.begin(0.0, new_tokens=1, held_tokens=1)
    assert give(policy, pool, trip(*range(30)), 30.0) is not home


def test_excluded_targets_are_not_chosen_and_nobody_left_is_nobody() -> None:
    policy = least_ttft()
    pool = joined(policy, 3)
    request = trip(1, excluded={0, 2})
    target = policy.pick(request, pool, 0.0)
    assert target is not None and target.index == 1
    assert policy.pick(trip(1, excluded={0, 1, 2}), pool, 0.0) is None


def test_a_replica_that_was_slow_is_asked_again_after_a_while() -> None:
    policy = least_ttft(imbalance=100.0)
    pool = joined(policy, 6)
    slow = pool[2]
    last_s = {}
    for number in range(1200):
        now_s = number / 10
        request = trip(1000 + number)
        target = policy.pick(request, pool, now_s)
        assert target is not None
        policy.note_sent(request, target, now_s)
        load = target.begin(now_s, new_tokens=64, held_tokens=64)
        ttft_s = 5.0 if target is slow else 0.02
        target.first_token(load, now_s + ttft_s, computed_tokens=None)
        target.end(load, now_s + ttft_s, has_finished=True)
        last_s[target.index] = now_s
    assert last_s[slow.index] > 50.0, "it was asked again"
    assert len(last_s) == 6


def test_a_small_share_gets_a_small_part() -> None:
    policy = least_ttft()
    pool = joined(policy, 3)
    small = pool[1]
    small.share = 0.1
    pool.reweigh(small)
    counts: Counter[int] = Counter()
    for number in range(600):
        counts[give(policy, pool, trip(3000 + number, output_tokens=100), number / 10).index] += 1
    assert 0 < counts[1] < 0.2 * counts[0]


def test_a_group_of_twice_the_weight_gets_twice_as_much() -> None:
    policy = least_ttft()
    pool = joined(policy, 4)
    for index in (0, 1):
        pool[index].weight = 2.0
        pool.reweigh(pool[index])
    counts: Counter[int] = Counter()
    for number in range(1200):
        counts[give(policy, pool, trip(3000 + number, output_tokens=100), number / 10).index] += 1
    assert counts[0] + counts[1] == pytest.approx(800, rel=0.1)


def test_a_far_replica_is_used_once_the_near_ones_are_late() -> None:
    policy = least_ttft()
    pool = joined(policy, 2)
    pool[1].penalty_s = 0.2
    assert {give(policy, pool, trip(9000 + i), i * 100.0).index for i in range(2)} == {0}
    pool[0].begin(0.0, new_tokens=10_000, held_tokens=0)
    assert give(policy, pool, trip(9100), 0.0).index == 1


def test_a_newcomer_is_not_given_everything() -> None:
    policy = least_ttft()
    pool = joined(policy, 3)
    for number in range(300):
        give(policy, pool, trip(1000 + number, output_tokens=100), number / 10)
    (newcomer,) = (t for t in joined(least_ttft(), 4) if t.index == 3)
    pool.add(newcomer)
    policy.note_joined(newcomer, pool)
    counts: Counter[int] = Counter()
    for number in range(300, 400):
        counts[give(policy, pool, trip(1000 + number, output_tokens=100), number / 10).index] += 1
    assert 15 <= counts[3] <= 40


def test_a_restarted_replica_is_no_home_any_more() -> None:
    policy = least_ttft()
    pool = joined(policy, 3)
    home = give(policy, pool, trip(*range(30)))
    policy.note_restarted(home)
    request = trip(*range(30))
    policy.pick(request, pool, 1.0)
    assert request.overlaps == {}


def test_work_does_not_overflow_over_days() -> None:
    policy = least_ttft(imbalance_window_s=60.0)
    pool = joined(policy, 3)
    counts: Counter[int] = Counter()
    for number in range(3000):
        counts[give(policy, pool, trip(1000 + number, output_tokens=100), number * 60.0).index] += 1
    assert max(counts.values()) <= 1.3 * 1000


def test_in_a_large_fleet_a_known_prompt_still_finds_its_home() -> None:
    policy = least_ttft()
    pool = joined(policy, 1000)
    home = give(policy, pool, trip(*range(50)))
    for number in range(3):
        assert give(policy, pool, trip(*range(50), 70 + number), float(number)) is home


def test_in_a_large_fleet_work_is_spread() -> None:
    policy = least_ttft()
    pool = joined(policy, 1000)
    chance = random.Random(3)
    loads = []
    for number in range(5000):
        request = trip(chance.randrange(10**9), output_tokens=50)
        target = give(policy, pool, request, number / 1000)
        loads.append(target)
    counts = Counter(target.index for target in loads)
    assert max(counts.values()) <= 3 * 5


@pytest.mark.slow
def test_choosing_among_a_thousand_costs_little_more_than_among_thirty() -> None:
    def cost_s(count: int) -> float:
        policy = least_ttft()
        pool = joined(policy, count)
        best = 1.0
        for number in range(200):
            request = trip(*range(number, number + 20))
            began_s = time.perf_counter()
            policy.pick(request, pool, 0.0)
            best = min(best, time.perf_counter() - began_s)
            policy.note_sent(request, pool.at(number % count), 0.0)
        return best

    assert cost_s(1000) < 3 * cost_s(30)
