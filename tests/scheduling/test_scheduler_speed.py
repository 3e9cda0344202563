"""The scheduler's own cost per step stays far below the time of a step."""

import statistics

import pytest
from benchmarks.scheduler.step_cost import measure_decode


@pytest.mark.slow
def test_a_step_of_a_thousand_streams_takes_at_most_five_milliseconds() -> None:
    rows = [measure_decode(1000, 200, spread=True) for _ in range(3)]
    assert statistics.median(row.step_p50_us for row in rows) <= 5000
