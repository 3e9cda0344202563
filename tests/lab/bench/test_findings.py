"""What is read out of a series of points: knees, limits, choices, recovery."""

from pathlib import Path

import pytest

from steelyard.lab.bench.curve import batch_limit, choose_for_latency
from steelyard.lab.bench.knee import find_knee, reach
from steelyard.lab.bench.repeats import across_runs
from steelyard.lab.bench.stress import peak_of_trace
from steelyard.lab.load import AzureTrace
from steelyard.lab.series import CurvePoint
from steelyard.lab.stats import Slo


def points(**columns: list[float]) -> list[CurvePoint]:
    """Points at the given concurrencies; what is not given is 1."""
    names = [f for f in CurvePoint.__struct_fields__ if f not in ("concurrency", "is_valid")]
    rows = zip(*columns.values(), strict=True)
    given = [dict(zip(columns, row, strict=True)) for row in rows]
    return [CurvePoint(**{**dict.fromkeys(names, 1.0), "is_valid": True, **row}) for row in given]


def test_a_curve_that_saturates_bends_where_it_does() -> None:
    assert find_knee([1, 2, 4, 8, 16], [10, 20, 38, 41, 42]) == 2


def test_a_straight_line_has_no_knee() -> None:
    assert find_knee([1, 2, 4, 8], [10, 20, 40, 80]) is None
    assert find_knee([1, 2], [10, 11]) is None


def test_more_that_brings_less_is_beyond_the_knee() -> None:
    assert find_knee([1, 2, 4, 8], [10, 20, 40, 20]) == 2
    assert find_knee([1, 2, 4], [10, 9, 8]) == 0


def test_limits_are_reached_between_points_on_a_logarithmic_scale() -> None:
    assert reach([1, 4], [10, 30], 20) == pytest.approx(2)
    assert reach([1, 4], [10, 30], 5) == 0
    assert reach([1, 4], [10, 30], 40) is None
    assert reach([], [], 1) is None


def test_for_latency_the_highest_concurrency_that_is_nearly_as_good_as_the_best() -> None:
    curve = points(concurrency=[1, 2, 4, 8], e2e_p99_ms=[100, 110, 124, 200])
    assert choose_for_latency(curve, 0.25) == 4
    assert choose_for_latency(curve, 0) == 1
    assert choose_for_latency([], 0.25) is None


def test_batches_of_long_prompts_are_compared_at_the_same_limit() -> None:
    short = points(concurrency=[1, 4, 16], itl_p99_ms=[10, 20, 60])
    long = points(concurrency=[1, 4, 16], itl_p99_ms=[20, 60, 90])
    found = batch_limit(short, long, Slo(itl_ms=60))
    assert found is not None
    assert (found.short_concurrency, found.long_concurrency) == (16, 4)
    assert found.smaller_by == 0.75
    assert batch_limit(short, [], None) is None


def test_a_single_run_has_no_interval() -> None:
    assert across_runs([5.0]).low is None
    both = across_runs([4.0, 6.0])
    assert both.low is not None and both.high is not None
    assert both.low < 4 < both.value == 5 < 6 < both.high


def test_the_peak_of_a_trace_is_its_busiest_minute(tmp_path: Path) -> None:
    file = tmp_path / "trace.csv"
    times = [*range(0, 600, 10), *(120 + n / 2 for n in range(60))]
    rows = [f"2023-11-16 18:{int(t) // 60:02}:{t % 60:09.6f},10,5" for t in sorted(times)]
    file.write_text("TIMESTAMP,ContextTokens,GeneratedTokens\n" + "\n".join(rows) + "\n")
    assert peak_of_trace(AzureTrace(str(file))) == pytest.approx(66 / 60)
