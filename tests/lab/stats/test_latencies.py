"""Latencies: where they begin, which tokens they count, and who has none."""

import numpy as np
import pytest

from steelyard.lab.outcomes import EventKind, Outcome, RequestFlag
from steelyard.lab.stats import Window, gaps, request_latencies, worst_gaps_s

from .series import request, run

WHOLE = Window(-1e9, 1e9)


def test_the_headline_counts_from_the_scheduled_time() -> None:
    latencies = request_latencies(run(request(1.0, [3.0, 3.5], sent_s=2.0)), WHOLE)
    assert latencies.ttft_s == [2.0]
    assert latencies.ttft_sent_s == [1.0]
    assert (latencies.e2e_s, latencies.e2e_sent_s) == ([2.5], [1.5])


@pytest.mark.parametrize("outcome", [o for o in Outcome if o is not Outcome.COMPLETE])
def test_a_request_that_failed_has_no_latency(outcome: Outcome) -> None:
    records = run(request(0.0, [1.0, 2.0], outcome=int(outcome)), request(1.0, [9.0, 10.0]))
    assert list(request_latencies(records, WHOLE).ttft_s) == [8.0]
    assert list(gaps(records, WHOLE).per_token_s) == [1.0]


def test_requests_outside_the_window_and_of_the_warm_up_are_left_out() -> None:
    records = run(
        request(0.0, [1.0]),
        request(5.0, [7.0]),
        request(9.0, [12.0]),
        request(6.0, [9.5], flags=int(RequestFlag.WARM_UP)),
    )
    assert list(request_latencies(records, Window(5.0, 9.0)).ttft_s) == [2.0]


def test_a_bundle_counts_as_that_many_shorter_gaps() -> None:
    found = gaps(run(request(0.0, [1.0, 1.4, 2.0], tokens=[1, 4, 1])), WHOLE)
    np.testing.assert_allclose(found.per_token_s, [0.1] * 4 + [0.6])
    np.testing.assert_allclose(found.per_event_s, [0.4, 0.6])


def test_a_bundle_in_the_first_event_makes_nothing_faster() -> None:
    latencies = request_latencies(run(request(0.0, [1.0, 1.2, 1.4], tokens=[10, 1, 1])), WHOLE)
    np.testing.assert_allclose(latencies.tpot_s, [0.2])
    assert latencies.output_tokens == [12]


def test_one_event_has_no_time_per_token() -> None:
    latencies = request_latencies(run(request(0.0, [1.0], tokens=[7])), WHOLE)
    assert np.isnan(latencies.tpot_s).all()
    assert latencies.ttft_s == [1.0]


def test_reasoning_counts_for_the_first_token_and_is_told_apart() -> None:
    thought, said = EventKind.REASONING, EventKind.ANSWER
    records = run(
        request(0.0, [1.0, 2.0, 3.0], kinds=[thought, thought, said]), request(5.0, [6.0, 7.0])
    )
    latencies = request_latencies(records, WHOLE)
    assert list(latencies.ttft_s) == [1.0, 1.0]
    assert latencies.ttfa_s[0] == 3.0
    assert np.isnan(latencies.ttfa_s[1]), "it did not reason"


def test_gaps_belong_to_their_own_stream() -> None:
    records = run(request(0.0, [1.0, 3.0]), request(0.5, [1.5, 2.5]))
    found = gaps(records, WHOLE)
    assert sorted(zip(found.owners, found.per_token_s, strict=True)) == [(0, 2.0), (1, 1.0)]
    assert list(found.times_s) == [2.5, 3.0], "in the order of time"


def test_gaps_count_where_the_token_came() -> None:
    records = run(request(0.0, [1.0, 2.0, 4.0, 7.0]))
    assert list(gaps(records, Window(2.0, 7.0)).per_token_s) == [1.0, 2.0]


def test_answers_in_one_piece_have_no_gaps() -> None:
    records = run(request(0.0, [5.0], flags=int(RequestFlag.NOT_STREAMED), first_token_s=np.nan))
    assert not len(gaps(records, WHOLE).per_token_s)
    assert np.isnan(request_latencies(records, WHOLE).ttft_s).all()
    assert request_latencies(records, WHOLE).e2e_s == [5.0]


def test_the_worst_gap_is_each_requests_own() -> None:
    smooth = [0.1 * n for n in range(1, 101)]
    records = run(request(0.0, smooth), request(0.5, [1.0, 4.0]), request(1.0, [2.0]))
    np.testing.assert_allclose(worst_gaps_s(records, np.arange(3), 0.99), [0.1, 3.0, 0.0])


def test_a_run_without_requests_has_no_latencies() -> None:
    records = run()
    assert not len(request_latencies(records, WHOLE).ttft_s)
    assert not len(gaps(records, WHOLE).per_token_s)
