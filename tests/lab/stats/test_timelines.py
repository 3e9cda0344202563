"""Concurrency and throughput over time."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from steelyard.lab.outcomes import Outcome
from steelyard.lab.stats import Window, concurrency, in_system, timeline, tokens_per_s

from .series import request, run

_SPANS = st.lists(st.tuples(st.floats(0, 50), st.floats(0.01, 20)), min_size=1, max_size=15)


@given(_SPANS)
def test_the_mean_concurrency_is_the_time_spent_over_the_duration(spans) -> None:
    records = run(*(request(start, [start + length]) for start, length in spans))
    whole = Window(0.0, 100.0)
    found = concurrency(records, whole)
    assert found.mean == pytest.approx(sum(length for _, length in spans) / 100)
    series = timeline(records, 100.0)
    assert np.mean(series.in_flight) == pytest.approx(found.mean)
    assert max(series.in_flight) <= found.peak + 1e-6


def test_requests_that_follow_each_other_never_overlap() -> None:
    records = run(*(request(float(at), [at + 1.0]) for at in range(10)))
    assert concurrency(records, Window(0.0, 10.0)).peak == 1


def test_what_is_outside_the_window_does_not_count() -> None:
    records = run(request(0.0, [4.0]), request(1.0, [4.0]), request(5.0, [9.0]))
    found = concurrency(records, Window(4.5, 8.0))
    assert found.peak == 1
    assert found.mean == pytest.approx(3 / 3.5)


def test_waiting_requests_are_in_the_system_and_not_in_flight() -> None:
    records = run(request(0.0, [8.0], sent_s=6.0))
    assert list(in_system(records, np.array([1.0, 7.0, 9.0]))) == [1, 1, 0]
    assert concurrency(records, Window(0.0, 6.0)).peak == 0


def test_tokens_count_in_the_second_in_which_they_came() -> None:
    records = run(
        request(0.0, [1.0, 2.0, 3.0], tokens=[1, 5, 1]),
        request(0.0, [2.5], outcome=int(Outcome.RESET)),
        request(0.0, [2.5], outcome=int(Outcome.ABANDONED)),
    )
    assert tokens_per_s(records, Window(1.5, 3.5)) == pytest.approx(7 / 2)
    series = timeline(records, 4.0)
    assert sum(series.output_tokens) == 8
    assert (sum(series.failed), sum(series.complete), sum(series.shed)) == (1, 1, 0)


def test_a_run_without_requests_has_an_empty_timeline() -> None:
    series = timeline(run(), 10.0)
    assert sum(series.scheduled) == 0
    assert set(series.ttft_p50_s) == {None}
    assert concurrency(run(), Window(0.0, 1.0)).peak == 0
