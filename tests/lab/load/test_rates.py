"""Rate profiles: the integral, its inverse and the way they are written."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from steelyard.contract.errors import InvalidRequest
from steelyard.lab.load import RateProfile, Segment, burst, parse_profile, steady

_RATES = st.floats(0, 100)
_SEGMENTS = st.builds(Segment, st.floats(0.01, 20), _RATES, _RATES)
PROFILES = (
    st.lists(_SEGMENTS, min_size=1, max_size=6)
    .map(lambda segments: RateProfile(tuple(segments)))
    .filter(lambda profile: profile.total > 1e-3)
)


@given(PROFILES, st.lists(st.floats(0, 0.9999), min_size=1, max_size=20))
def test_the_inverse_gives_times_at_which_the_counts_are_expected(
    profile: RateProfile, shares: list[float]
) -> None:
    counts = np.array(sorted(shares)) * profile.total
    times_s = profile.when_expected(counts)
    assert np.all(np.diff(times_s) >= 0)
    assert np.all((times_s >= 0) & (times_s <= profile.duration_s))
    np.testing.assert_allclose(
        profile.expected_until(times_s), counts, rtol=1e-6, atol=1e-6 * profile.total
    )


@given(PROFILES)
def test_the_integral_ends_at_the_total_and_stays_there(profile: RateProfile) -> None:
    ends = np.array([profile.duration_s, profile.duration_s * 2])
    np.testing.assert_allclose(profile.expected_until(ends), profile.total, rtol=1e-9)


@given(PROFILES, st.floats(0.001, 0.999))
def test_the_rate_is_the_slope_of_the_integral(profile: RateProfile, share: float) -> None:
    time_s = share * profile.duration_s
    step_s = profile.duration_s * 1e-7
    edges = np.cumsum([segment.duration_s for segment in profile.segments])
    if np.min(np.abs(edges - time_s)) < 2 * step_s:
        return  # on a corner there is no slope
    low, high = profile.expected_until(np.array([time_s - step_s, time_s + step_s]))
    assert (high - low) / (2 * step_s) == pytest.approx(
        profile.rate_at(np.array([time_s]))[0], rel=1e-3, abs=1e-3 * profile.peak_rate
    )


def test_stages_ramps_and_bursts_are_written_as_rate_at_seconds() -> None:
    assert parse_profile("5@60") == steady(5, 60)
    assert parse_profile("1:20@120, 20@30").segments == (Segment(120, 1, 20), Segment(30, 20, 20))
    made = burst(10, factor=3, before_s=60, burst_s=30, after_s=45)
    assert made == parse_profile("10@60,30@30,10@45")
    assert made.peak_rate == 30
    assert made.total == 600 + 900 + 450


def test_a_pause_holds_no_requests() -> None:
    profile = parse_profile("1@10,0@10,1@10")
    times_s = profile.when_expected(np.arange(20) + 0.5)
    assert not np.any((times_s > 10) & (times_s < 20))


@pytest.mark.parametrize("text", ["", "5", "5@", "@60", "5@60;", "-5@60", "5@0", "0@60", "a@b"])
def test_what_is_no_profile_is_refused(text: str) -> None:
    with pytest.raises(InvalidRequest):
        parse_profile(text)
