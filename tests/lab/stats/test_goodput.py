"""Goodput: who is good, and how sure one can be."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from steelyard.lab.outcomes import Outcome
from steelyard.lab.stats import Slo, Window, are_good, goodput, wilson

from .series import request, run

TEN = Window(0.0, 10.0)


def test_every_limit_of_the_target_must_hold() -> None:
    slow_start = request(0.0, [3.0, 3.1])
    slow_token = request(1.0, [1.5, 4.5])
    slow_end = request(2.0, [2.1, *np.linspace(2.2, 12, 200)])
    fine = request(3.0, [3.5, 3.6])
    records = run(slow_start, slow_token, slow_end, fine)
    assert list(are_good(records, Slo(ttft_ms=1000))) == [False, True, True, True]
    assert list(are_good(records, Slo(itl_ms=500))) == [True, False, True, True]
    assert list(are_good(records, Slo(tpot_ms=200))) == [True, False, True, True]
    assert list(are_good(records, Slo(e2e_ms=4000))) == [True, True, False, True]
    both = Slo(ttft_ms=1000, itl_ms=500, tpot_ms=200, e2e_ms=4000)
    assert list(are_good(records, both)) == [False, False, False, True]
    assert are_good(records, Slo()).all()


def test_waiting_in_the_client_is_not_good() -> None:
    records = run(request(0.0, [5.0, 5.1], sent_s=4.9))
    assert not are_good(records, Slo(ttft_ms=1000)).any()


def test_failures_and_refusals_were_asked_for_and_are_not_good() -> None:
    records = run(
        request(1.0, [1.1, 1.2]),
        request(2.0, outcome=int(Outcome.SHED)),
        request(3.0, [3.1], outcome=int(Outcome.RESET)),
        request(4.0, outcome=int(Outcome.ABANDONED)),
        request(11.0, [11.1]),
    )
    found = goodput(records, TEN, Slo(ttft_ms=1000))
    assert (found.asked, found.good) == (3, 1)
    assert found.per_s.value == pytest.approx(0.1)
    assert found.share.low < 1 / 3 < found.share.high


@given(st.integers(0, 1000), st.integers(1, 1000))
def test_wilsons_interval_holds_the_share_and_stays_between_0_and_1(good: int, more: int) -> None:
    asked = good + more
    found = wilson(good, asked)
    assert 0 <= found.low <= found.value <= found.high <= 1


def test_wilsons_interval_for_half_of_twenty_is_30_to_70_percent() -> None:
    found = wilson(10, 20)
    assert (found.low, found.high) == (
        pytest.approx(0.2993, abs=1e-4),
        pytest.approx(0.7007, abs=1e-4),
    )


def test_nothing_asked_is_nothing_good() -> None:
    found = goodput(run(), TEN, Slo())
    assert (found.asked, found.good, found.share.low) == (0, 0, None)
