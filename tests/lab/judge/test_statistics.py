"""Intervals hold as often as they say, and verdicts follow from them."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from steelyard.lab.judge.comparison import Measure, Verdict, judge, overall
from steelyard.lab.judge.contrasts import (
    Contrast,
    compare_paired,
    compare_repeated,
    compare_single,
)
from steelyard.lab.stats import Estimate, summarise

_TRIALS = 600
_BY_CHANCE = 0.05 + 3 * math.sqrt(0.05 * 0.95 / _TRIALS)
"""Share of false alarms that a fair procedure stays below in 999 of 1000 test runs."""


@pytest.mark.parametrize("groups", [3, 6, 12])
@pytest.mark.parametrize("tail", ["normal", "heavy"])
def test_interleaved_blocks_of_equal_servers_raise_false_alarms_in_one_of_twenty_at_most(
    groups: int, tail: str
) -> None:
    random = np.random.default_rng([groups, len(tail)])
    alarms = 0
    for _ in range(_TRIALS):
        shape = (groups, 8)
        own = random.standard_t(3, shape) if tail == "heavy" else random.standard_normal(shape)
        rows = 0.02 * (random.standard_normal((groups, 1)) + own)  # percentiles move together
        alarms += any(c.low > 0 or c.high < 0 for c in compare_paired(rows))
    assert alarms / _TRIALS <= _BY_CHANCE


@pytest.mark.parametrize(("left", "right"), [(5, 5), (3, 8), (6, 1), (1, 6)])
def test_repeated_runs_of_equal_servers_raise_false_alarms_in_one_of_twenty_at_most(
    left: int, right: int
) -> None:
    random = np.random.default_rng([left, right])
    alarms = 0
    for _ in range(_TRIALS):
        sides = [
            5 + 0.03 * (random.standard_normal((n, 1)) + random.standard_normal((n, 6)))
            for n in (left, right)
        ]
        alarms += any(c.low > 0 or c.high < 0 for c in compare_repeated(*sides))
    assert alarms / _TRIALS <= _BY_CHANCE


def test_single_runs_of_equal_servers_raise_false_alarms_in_one_of_twenty_at_most() -> None:
    random = np.random.default_rng(5)
    trials, alarms = 60, 0
    for _ in range(trials):
        summaries = []
        for _ in range(2):
            noise = np.convolve(random.standard_normal(409), np.ones(10) / 10, "valid")
            summary = summarise(np.exp(5 + 0.3 * noise))  # neighbours are alike, as in a queue
            assert summary is not None
            summaries.append(summary)
        pairs = [
            (summaries[0].percentiles[name], summaries[1].percentiles[name])
            for name in ("p50", "p90", "p99")
        ]
        alarms += any(c is not None and (c.low > 0 or c.high < 0) for c in compare_single(pairs))
    assert alarms / trials <= 0.05 + 3 * math.sqrt(0.05 * 0.95 / trials)


def test_what_is_called_detectable_is_found_in_four_of_five() -> None:
    random = np.random.default_rng(1)
    spread, groups = 0.02, 8
    rows = spread * random.standard_normal((groups, 5))
    detectable = np.median([c.detectable for c in compare_paired(rows)])
    found = sum(
        compare_paired(spread * random.standard_normal((groups, 5)) + math.log1p(detectable))[0].low
        > 0
        for _ in range(400)
    )
    assert 0.7 <= found / 400 <= 0.95


def test_a_shift_of_all_groups_is_the_estimate() -> None:
    rows = np.log(1.1) + 0.01 * np.random.default_rng(2).standard_normal((10, 3))
    for contrast in compare_paired(rows):
        assert contrast.change.value == pytest.approx(0.1, abs=0.02)
        assert contrast.low > 0


@given(
    st.floats(-0.5, 0.5),
    st.floats(1e-4, 0.3),
    st.integers(1, 50),
    st.floats(0.01, 0.3),
    st.booleans(),
)
def test_verdicts_never_contradict_their_interval(
    log_ratio: float, error: float, units: int, margin: float, more_is_better: bool
) -> None:
    contrast = Contrast(log_ratio=log_ratio, standard_error=error, critical=3.0, units=units)
    (row,) = judge(
        [Measure("x", "p50", more_is_better)],
        [(1.0, math.exp(log_ratio))],
        [contrast],
        margin=margin,
        unit="runs",
    )
    low, high = row.change.low, row.change.high
    assert low is not None
    assert high is not None
    assert low <= row.change.value <= high
    if row.verdict is Verdict.ALIKE:
        assert 1 / (1 + margin) - 1 < low
        assert high < margin
    elif row.verdict is not Verdict.UNDECIDED:
        is_up = row.verdict is (Verdict.BETTER if more_is_better else Verdict.WORSE)
        assert (low > 0) if is_up else (high < 0)
    else:
        assert low <= 0 <= high
        assert row.needs_more is not None
        assert row.needs_more >= 1


@given(st.floats(1e-3, 0.5), st.integers(3, 40), st.floats(0.01, 0.2))
def test_as_many_units_as_are_asked_for_decide(error: float, units: int, margin: float) -> None:
    contrast = Contrast(log_ratio=0.0, standard_error=error, critical=3.0, units=units)
    needed = contrast.units_for(margin)
    later = Contrast(
        log_ratio=0.0,
        standard_error=error * math.sqrt(units / needed),
        critical=3.0,
        units=needed,
    )
    assert max(abs(later.low), abs(later.high)) <= math.log1p(margin) / 2 + 1e-9


def test_one_worse_number_makes_the_whole_worse() -> None:
    measures = [Measure("ttft_ms", "p99"), Measure("itl_ms", "p50")]
    contrasts = [
        Contrast(log_ratio=0.2, standard_error=0.01, critical=3, units=8),
        Contrast(log_ratio=-0.2, standard_error=0.01, critical=3, units=8),
    ]
    rows = judge(measures, [(1, 1.2), (1, 0.8)], contrasts, margin=0.05, unit="groups")
    verdict, words = overall(rows, 0.05, "groups")
    assert verdict is Verdict.WORSE
    assert words == "worse: ttft_ms p99 +22.1%; better: itl_ms p50 -18.1%"


def test_too_few_values_are_undecided_and_nobody_says_how_many_are_needed() -> None:
    (contrast,) = compare_single([(Estimate(1.0, 0.9, None), Estimate(1.0, 0.9, 1.1))])
    rows = judge([Measure("ttft_ms", "p99")], [(1, 1)], [contrast], margin=0.05, unit="runs")
    assert rows[0].verdict is Verdict.UNDECIDED
    assert rows[0].needs_more is None
    assert overall(rows, 0.05, "runs")[0] is Verdict.UNDECIDED
