"""Intervals hold the truth as often as they say, for dependent series as well."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from steelyard.lab.stats import block_length, bootstrap_counts, quantile_estimates, summarise


@given(st.lists(st.floats(0, 1e6), min_size=1, max_size=300))
def test_a_summary_is_in_order(values: list[float]) -> None:
    summary = summarise(np.array(values))
    points = [estimate.value for estimate in summary.percentiles.values()]
    assert points == sorted(points)
    assert summary.minimum <= points[0] <= points[-1] <= summary.maximum
    for estimate in summary.percentiles.values():
        assert estimate.low is None or estimate.low <= estimate.value * (1 + 1e-9)
        assert estimate.high is None or estimate.high >= estimate.value * (1 - 1e-9)


def test_equal_values_have_an_interval_of_no_width() -> None:
    p50 = summarise(np.full(50, 0.2)).percentiles["p50"]
    assert (p50.low, p50.value, p50.high) == (0.2, 0.2, 0.2)


def test_nothing_has_no_summary_and_unknown_values_do_not_count() -> None:
    assert summarise(np.array([])) is None
    assert summarise(np.array([np.nan])) is None
    assert summarise(np.array([np.nan, 1.0])).count == 1


def test_a_tail_that_so_few_values_cannot_show_has_no_bound() -> None:
    few, enough = (summarise(np.arange(float(n))).percentiles["p99"] for n in (366, 368))
    assert few.high is None
    assert enough.high is not None
    assert summarise(np.arange(3.0)).percentiles["p50"].low is None


@pytest.mark.parametrize(("dependence", "quantile"), [(0.0, 0.9), (0.9, 0.5), (0.9, 0.9)])
def test_intervals_hold_the_truth_about_19_times_in_20(dependence: float, quantile: float) -> None:
    random, held, trials = np.random.default_rng(5), 0, 60
    truth = math.exp(_normal_quantile(quantile))
    for trial in range(trials):
        values = np.exp(_dependent_normals(600, dependence, random))
        (estimate,) = quantile_estimates(values, [quantile], seed=trial)
        held += estimate.low <= truth <= estimate.high
    assert held / trials > 0.86


def test_long_series_are_as_good_as_short_ones() -> None:
    random, held = np.random.default_rng(6), 0
    truth = math.exp(_normal_quantile(0.99))
    for trial in range(12):
        values = np.exp(_dependent_normals(20_000, 0.8, random))
        (estimate,) = quantile_estimates(values, [0.99], seed=trial)
        held += estimate.low <= truth <= estimate.high
    assert held >= 10


def test_blocks_are_as_long_as_the_dependence() -> None:
    random = np.random.default_rng(7)
    independent = block_length(_dependent_normals(2000, 0.0, random))
    dependent = block_length(_dependent_normals(2000, 0.95, random))
    assert independent <= 4
    assert dependent > 25


@given(st.integers(1, 60), st.integers(1, 80), st.integers(0, 99))
def test_a_resample_is_made_of_whole_blocks(segments: int, block: int, seed: int) -> None:
    counts = bootstrap_counts(segments, block, resamples=5, random=np.random.default_rng(seed))
    block = min(block, segments)
    assert counts.shape == (5, segments)
    assert np.all(counts.sum(axis=1) == block * -(-segments // block))
    assert np.all(counts >= 0)


def _dependent_normals(count: int, dependence: float, random) -> np.ndarray:
    """A stationary first-order autoregression with unit variance."""
    from scipy.signal import lfilter

    noise = random.normal(size=count + 500) * math.sqrt(1 - dependence**2)
    return lfilter([1], [1, -dependence], noise)[500:]


def _normal_quantile(quantile: float) -> float:
    from scipy import stats

    return float(stats.norm.ppf(quantile))
