"""Open-loop arrivals: the asked rate exactly, the asked process, and the same every time."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from steelyard.contract.errors import InvalidRequest
from steelyard.lab.load import OpenLoop, RateProfile, burst, parse_profile, steady
from steelyard.lab.load.arrivals import start_times
from steelyard.lab.load.randomness import Streams

from .test_rates import PROFILES


@given(PROFILES, st.sampled_from([0.0, 0.5, 1.0, 4.0]))
def test_times_ascend_within_the_profile_and_have_its_count(
    profile: RateProfile, cv: float
) -> None:
    times_s = start_times(OpenLoop(profile, cv), Streams(1))
    assert len(times_s) == max(round(profile.total), 1)
    assert np.all(np.diff(times_s) >= 0)
    assert np.all((times_s >= 0) & (times_s <= profile.duration_s))


@given(st.integers(0, 2**32), st.sampled_from([0.0, 1.0, 2.5]))
def test_equal_seeds_give_equal_times(seed: int, cv: float) -> None:
    arrivals = OpenLoop(steady(20, 10), cv)
    first, second = (start_times(arrivals, Streams(seed)) for _ in range(2))
    np.testing.assert_array_equal(first, second)


def test_constant_arrivals_stand_in_equal_distances() -> None:
    times_s = start_times(OpenLoop(steady(10, 60), 0), Streams(0))
    np.testing.assert_allclose(times_s, np.arange(600) / 10)


def test_poisson_arrivals_have_exponential_gaps_and_no_memory() -> None:
    times_s = start_times(OpenLoop(steady(50, 400)), Streams(7))
    gaps = np.diff(times_s)
    assert stats.kstest(gaps, "expon", args=(0, 1 / 50)).pvalue > 0.01
    assert abs(np.corrcoef(gaps[:-1], gaps[1:])[0, 1]) < 0.03
    counts = np.histogram(times_s, bins=400, range=(0, 400))[0]
    assert counts.var() / counts.mean() == pytest.approx(1, abs=0.25)


@pytest.mark.parametrize("cv", [0.3, 2.0, 5.0])
def test_gamma_arrivals_have_the_asked_burstiness(cv: float) -> None:
    gaps = np.diff(start_times(OpenLoop(steady(100, 300), cv), Streams(3)))
    assert gaps.std() / gaps.mean() == pytest.approx(cv, rel=0.08)


def test_a_burst_sends_three_times_as_much() -> None:
    profile = burst(20, factor=3, before_s=50, burst_s=50, after_s=50)
    times_s = start_times(OpenLoop(profile), Streams(11))
    before, during, after = np.histogram(times_s, bins=[0, 50, 100, 150])[0]
    assert before == pytest.approx(1000, rel=0.1)
    assert during == pytest.approx(3000, rel=0.06)
    assert after == pytest.approx(1000, rel=0.1)


def test_a_ramp_sends_its_requests_where_the_rate_is_high() -> None:
    times_s = start_times(OpenLoop(parse_profile("0:40@100")), Streams(5))
    assert len(times_s) == 2000
    assert np.mean(times_s < 50) == pytest.approx(0.25, abs=0.03)


def test_streams_of_different_purpose_seed_or_index_share_nothing() -> None:
    draws = [
        Streams(seed).generator(purpose, *index).integers(0, 2**63, size=4).tobytes()
        for seed in (0, 1)
        for purpose in ("gaps", "words")
        for index in ((), (0,), (1,), (0, 1), (1, 0))
    ]
    assert len(set(draws)) == len(draws)


@pytest.mark.parametrize(
    ("rate", "duration_s"), [(float("inf"), 5.0), (1e9, 100.0), (5.0, 1e30), (5.0, float("inf"))]
)
def test_more_requests_than_can_be_planned_are_refused(rate: float, duration_s: float) -> None:
    with pytest.raises(InvalidRequest, match="more than a run can have"):
        start_times(OpenLoop(profile=steady(rate, duration_s)), Streams(0))
