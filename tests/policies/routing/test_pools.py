"""The set of targets that may be chosen."""

import random
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from steelyard.policies.routing import Pool, Target


@given(st.lists(st.tuples(st.booleans(), st.integers(0, 7)), max_size=60))
def test_a_pool_is_a_set(steps: list[tuple[bool, int]]) -> None:
    targets = [Target(index, weight=index + 1.0) for index in range(8)]
    pool, model = Pool(), set()
    for is_adding, index in steps:
        if is_adding:
            pool.add(targets[index])
            model.add(index)
        else:
            pool.discard(targets[index])
            model.discard(index)
        assert {target.index for target in pool} == model
        assert {pool.at(place).index for place in range(len(pool))} == model
        assert all((index in pool) == (index in model) for index in range(8))
        assert pool.capacity == pytest.approx(sum(index + 1.0 for index in model))


def test_draws_are_even_and_without_repetition() -> None:
    pool = Pool(tuple(Target(index) for index in range(10)))
    chance = random.Random(5)
    counts: Counter[int] = Counter()
    for _ in range(2000):
        drawn = pool.draw(3, chance)
        assert 1 <= len({target.index for target in drawn}) == len(drawn) <= 3
        counts.update(target.index for target in drawn)
    assert max(counts.values()) < 1.3 * min(counts.values())
    assert Pool().draw(3, chance) == []


def test_a_changed_capacity_is_counted_when_told() -> None:
    first, second = Target(0), Target(1)
    pool = Pool((first, second))
    first.share = 0.5
    pool.reweigh(first)
    assert pool.capacity == pytest.approx(1.5)
    pool.discard(first)
    pool.reweigh(first)
    assert pool.capacity == pytest.approx(1.0)
