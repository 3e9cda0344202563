"""The beginning of a run is cut off where the data say so."""

import numpy as np
import pytest

from steelyard.lab.stats import mser


@pytest.mark.parametrize("transient", [50, 200, 400])
def test_a_transient_is_cut_off(transient: int) -> None:
    random = np.random.default_rng(transient)
    level = np.concatenate((np.linspace(5, 1, transient), np.ones(1000)))
    found = mser(level + random.normal(0, 0.1, len(level)))
    assert found.is_settled
    assert transient * 0.7 <= found.cut <= transient + 60


def test_a_steady_series_is_kept_whole() -> None:
    found = [mser(np.random.default_rng(seed).exponential(size=600)) for seed in range(40)]
    assert sum(truncation.cut > 0 for truncation in found) <= 2
    assert sum(truncation.is_settled for truncation in found) >= 36


@pytest.mark.parametrize("slope", [1.0, -1.0])
def test_a_series_that_keeps_growing_or_falling_never_settles(slope: float) -> None:
    random = np.random.default_rng(3)
    found = mser(slope * np.arange(500) / 50 + random.normal(0, 0.2, 500))
    assert not found.is_settled
    assert found.cut == 0


def test_a_few_values_settle_nothing() -> None:
    assert not mser(np.array([1.0, 2.0, 1.0])).is_settled


def test_a_step_in_a_short_series_is_found_to_the_value() -> None:
    assert mser(np.array([9.0] * 8 + [1.0] * 30)).cut == 8
