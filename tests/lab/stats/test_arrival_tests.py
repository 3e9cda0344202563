"""Delivered arrivals are told from what was asked: faults are seen, chance is not."""

import numpy as np
import pytest

from steelyard.lab.load import OpenLoop, burst, parse_profile, steady
from steelyard.lab.load.arrivals import start_times
from steelyard.lab.load.randomness import Streams
from steelyard.lab.stats import open_loop_test, replay_test

PROFILES = {
    "steady": steady(10, 30),
    "burst": burst(5, factor=3, before_s=20, burst_s=20, after_s=20),
    "ramp": parse_profile("1:20@30"),
}


@pytest.mark.parametrize("cv", [0.5, 1.0, 2.0])
@pytest.mark.parametrize("name", PROFILES)
def test_what_was_asked_passes(name: str, cv: float) -> None:
    arrivals = OpenLoop(PROFILES[name], cv)
    lows = {"ks": 0, "spread": 0, "repetition": 0, "simultaneous": 0}
    for seed in range(60):
        times_s = start_times(arrivals, Streams(seed)) + 0.0003
        test = open_loop_test(times_s, arrivals)
        lows["ks"] += test.ks_p < 0.01
        lows["spread"] += test.spread_p is not None and test.spread_p < 0.01
        lows["repetition"] += test.repetition_p < 0.01
        lows["simultaneous"] += test.simultaneous_p < 0.01
    assert max(lows.values()) <= 4, lows


def test_constant_arrivals_have_no_chance_in_them() -> None:
    arrivals = OpenLoop(steady(10, 30), 0)
    asked = start_times(arrivals, Streams(0))
    assert open_loop_test(asked + 0.001, arrivals).ks_distance < 0.001
    assert open_loop_test(asked + 0.001, arrivals).ks_p is None
    assert open_loop_test(asked * 1.1, arrivals).ks_distance > 0.05


def test_a_stream_shared_by_workers_that_add_up_is_seen() -> None:
    random = np.random.default_rng(42)
    times_s = np.cumsum(np.repeat(random.exponential(0.1, 15), 10))
    test = open_loop_test(times_s, OpenLoop(steady(10, 15)), workers=10)
    assert test.repetition_lag == 1
    assert test.repetition > 0.7
    assert test.repetition_p < 1e-9


def test_a_stream_shared_by_workers_that_run_side_by_side_is_seen() -> None:
    random = np.random.default_rng(42)
    own = np.cumsum(random.exponential(0.4, 75))
    jitter = random.uniform(0, 0.0005, (4, 75))
    times_s = np.sort((own + jitter).ravel())
    test = open_loop_test(times_s, OpenLoop(steady(10, 30)), workers=4)
    assert test.simultaneous > 0.7
    assert test.simultaneous_p < 1e-9
    assert test.ks_p < 1e-9


def test_a_rate_that_is_too_high_is_seen() -> None:
    times_s = start_times(OpenLoop(steady(16, 30)), Streams(1))
    test = open_loop_test(times_s, OpenLoop(steady(10, 30)))
    assert test.delivered_per_s == pytest.approx(16, rel=0.01)
    assert test.asked_per_s == 10


def test_constant_gaps_are_no_poisson_process() -> None:
    assert open_loop_test(np.arange(300) / 10, OpenLoop(steady(10, 30))).ks_p < 1e-6


def test_a_burst_that_was_smoothed_is_seen() -> None:
    profile = PROFILES["burst"]
    times_s = np.sort(np.random.default_rng(1).uniform(0, 60, round(profile.total)))
    assert open_loop_test(times_s, OpenLoop(profile)).spread_p < 1e-6


def test_a_trace_is_compared_time_by_time() -> None:
    asked_s = np.array([0.0, 0.0, 0.0, 5.0, 9.0])
    assert replay_test(asked_s + 0.001, asked_s, 10.0).ks_distance == pytest.approx(0.0001)
    assert replay_test(asked_s + 1.5, asked_s, 10.0).ks_distance == pytest.approx(0.15)
    assert replay_test(asked_s[:3], asked_s, 10.0).delivered_per_s == 0.3


def test_nothing_delivered_is_as_wrong_as_can_be() -> None:
    assert open_loop_test(np.array([]), OpenLoop(steady(10, 30))).ks_distance == 1
    assert replay_test(np.array([]), np.array([1.0]), 5.0).ks_distance == 1
