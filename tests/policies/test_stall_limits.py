"""How long silence may last, and the quantiles it is learned with."""

import math
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from steelyard.policies.config import StallConfig
from steelyard.policies.quantiles import DurationQuantile
from steelyard.policies.stalls import StallLimit

DURATIONS = st.lists(st.floats(0.011, 1000.0), min_size=1, max_size=300)


@given(DURATIONS, st.sampled_from([0.5, 0.9, 0.95, 0.99]))
def test_an_estimate_is_at_most_a_bucket_above_the_true_quantile(
    durations: list[float], quantile: float
) -> None:
    estimator = DurationQuantile(quantile, window=10_000)
    for duration_s in durations:
        estimator.add(duration_s)
    rank = max(math.ceil(quantile * len(durations)) - 1, 0)
    true_s = sorted(durations)[rank]
    assert true_s / 1.001 <= estimator.estimate_s() <= 1.2 * true_s


def test_weights_count_like_repetitions() -> None:
    one, many = DurationQuantile(0.9), DurationQuantile(0.9)
    one.add(0.5, 90)
    one.add(5.0, 10)
    for _ in range(90):
        many.add(0.5)
    for _ in range(10):
        many.add(5.0)
    assert one.estimate_s() == many.estimate_s()


def test_old_durations_are_forgotten() -> None:
    estimator = DurationQuantile(0.99, window=1000)
    for _ in range(1000):
        estimator.add(10.0)
    for _ in range(20_000):
        estimator.add(0.02)
    assert estimator.estimate_s() < 0.05


def test_memory_and_count_are_bounded() -> None:
    estimator = DurationQuantile(0.5, window=100)
    for _ in range(100_000):
        estimator.add(random.uniform(0, 1e9))
    assert estimator.count <= 100


def test_while_nothing_is_known_the_floor_counts() -> None:
    assert StallLimit(StallConfig(floor_s=1.0)).limit_s == 1.0


def test_a_fast_replica_keeps_the_floor() -> None:
    limit = StallLimit(StallConfig(floor_s=1.0, factor=5.0))
    limit.add(0.02, 1000)
    assert limit.limit_s == 1.0


def test_a_slow_replica_gets_a_multiple_of_its_silences() -> None:
    limit = StallLimit(StallConfig(floor_s=1.0, factor=5.0))
    limit.add(0.8, 1000)
    assert 4.0 <= limit.limit_s <= 5.0
    assert limit.lone_limit_s == pytest.approx(10 * limit.limit_s)


def test_the_limit_is_capped() -> None:
    limit = StallLimit(StallConfig(cap_s=30.0))
    limit.add(100.0, 1000)
    assert limit.limit_s == 30.0


def test_a_first_token_is_overdue_only_when_late_in_itself_and_against_the_prediction() -> None:
    limit = StallLimit(StallConfig(doubt_s=2.0, doubt_factor=3.0))
    assert not limit.is_overdue(1.9, 0.01)
    assert limit.is_overdue(2.1, 0.01)
    assert not limit.is_overdue(20.0, 10.0), "a long prompt takes its time"
    assert limit.is_overdue(31.0, 10.0)
