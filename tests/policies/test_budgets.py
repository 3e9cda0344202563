"""Retries and hedges stay a bounded share of the load."""

from hypothesis import given
from hypothesis import strategies as st

from steelyard.policies.config import HedgingConfig
from steelyard.policies.hedging import Hedging
from steelyard.policies.retry_budget import RetryBudget

STEPS = st.lists(
    st.tuples(st.sampled_from(["request", "retry"]), st.floats(0.0, 0.5)), max_size=400
)


@given(STEPS, st.floats(0.0, 1.0), st.floats(0.0, 20.0), st.floats(0.0, 2.0))
def test_retries_never_exceed_share_of_requests_plus_reserve_plus_time(
    steps: list[tuple[str, float]], share: float, reserve: float, per_s: float
) -> None:
    budget = RetryBudget(share=share, reserve=reserve, per_s=per_s, now_s=0.0)
    now_s, requests, retries = 0.0, 0, 0
    for kind, pause_s in steps:
        now_s += pause_s
        if kind == "request":
            budget.note_attempt(now_s)
            requests += 1
        else:
            retries += budget.try_spend(now_s)
        assert retries <= share * requests + reserve + per_s * now_s + 1e-6
        assert -1e-9 <= budget.balance <= reserve


def test_when_everything_fails_a_fifth_is_retried() -> None:
    budget = RetryBudget(share=0.2, reserve=20, per_s=0.0, now_s=0.0)
    retries = 0
    for _ in range(10_000):
        budget.note_attempt(0.0)
        retries += budget.try_spend(0.0)
    assert 0.19 <= retries / 10_000 <= 0.21
    assert budget.refused == 10_000 - retries


def test_a_quiet_service_may_retry() -> None:
    budget = RetryBudget(share=0.2, reserve=5, per_s=1.0, now_s=0.0)
    assert all(budget.try_spend(0.0) for _ in range(5))
    assert not budget.try_spend(0.0)
    assert budget.try_spend(1.5)


def test_nothing_is_hedged_before_times_are_known() -> None:
    hedging = Hedging(HedgingConfig(), 0.0)
    assert hedging.delay_s is None
    for _ in range(100):
        hedging.note_first_token(0.3)
    assert hedging.delay_s is not None and 0.3 <= hedging.delay_s <= 0.36


def test_fast_services_are_not_hedged_sooner_than_the_minimum() -> None:
    hedging = Hedging(HedgingConfig(min_s=0.05), 0.0)
    for _ in range(100):
        hedging.note_first_token(0.001)
    assert hedging.delay_s == 0.05


def test_hedges_are_bounded_whatever_is_late() -> None:
    hedging = Hedging(HedgingConfig(budget_share=0.05), 0.0)
    hedges = 0
    for _ in range(10_000):
        hedging.note_attempt(0.0)
        hedges += hedging.try_spend(0.0)
    assert hedges <= 0.05 * 10_000 + 2
