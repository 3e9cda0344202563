"""The cost model learns what steps cost, shrugs at stalls, and bounds prefill by it."""

import math
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from steelyard.scheduling.config import SchedulerConfig
from steelyard.scheduling.prefill_allowance import PrefillAllowance
from steelyard.scheduling.step_cost import StepCost, attended_tokens
from steelyard.scheduling.step_plan import StepPlan

Rates = tuple[float, float, float, float]
CPU: Rates = (8e-3, 1.1e-3, 6e-4, 1.2e-6)
GPU: Rates = (9e-3, 2e-5, 1.5e-5, 2e-9)
SLOW: Rates = (0.9, 0.05, 0.04, 2e-5)


def true_s(rates: Rates, decodes: int, prefill: int, attended: int) -> float:
    a, b, c, d = rates
    return a + b * decodes + c * prefill + d * attended


def random_step(dice: random.Random) -> tuple[int, int, int]:
    decodes = dice.randint(0, 32)
    prefill = dice.choice([0, 0, 0, dice.randint(1, 256)])
    context = dice.randint(50, 1500)
    return decodes, prefill, (decodes + prefill) * context


def train(
    cost: StepCost, rates: Rates, steps: int, dice: random.Random, *, outliers: float = 0.0
) -> None:
    for _ in range(steps):
        decodes, prefill, attended = random_step(dice)
        elapsed_s = true_s(rates, decodes, prefill, attended) * dice.uniform(0.95, 1.05)
        if dice.random() < outliers:
            elapsed_s *= 10
        cost.observe(
            decode_tokens=decodes,
            prefill_tokens=prefill,
            attended_tokens=attended,
            elapsed_s=elapsed_s,
        )
        assert min(cost.rates) >= 0


def worst_error(cost: StepCost, rates: Rates, dice: random.Random) -> float:
    errors = []
    for _ in range(200):
        decodes, prefill, attended = random_step(dice)
        wanted_s = true_s(rates, decodes, prefill, attended)
        predicted_s = cost.predict_s(
            decode_tokens=decodes, prefill_tokens=prefill, attended_tokens=attended
        )
        errors.append(abs(predicted_s / wanted_s - 1))
    return max(errors)


@pytest.mark.parametrize("rates", [CPU, GPU, SLOW])
def test_predictions_are_near_after_a_few_hundred_steps(rates: Rates) -> None:
    dice = random.Random(1)
    cost = StepCost()
    train(cost, rates, 800, dice)
    assert worst_error(cost, rates, dice) < 0.10


def test_the_scale_is_right_after_a_handful_of_steps() -> None:
    dice = random.Random(2)
    cost = StepCost()
    for _ in range(8):
        cost.observe(
            decode_tokens=4,
            prefill_tokens=0,
            attended_tokens=400,
            elapsed_s=true_s(SLOW, 4, 0, 400) * dice.uniform(0.9, 1.1),
        )
    predicted_s = cost.predict_s(decode_tokens=4, attended_tokens=400)
    assert predicted_s == pytest.approx(true_s(SLOW, 4, 0, 400), rel=0.1)


def test_slow_first_steps_do_not_spoil_the_scale() -> None:
    cost = StepCost()
    for step in range(8):
        stall = 50.0 if step < 3 else 1.0
        cost.observe(decode_tokens=1, prefill_tokens=0, attended_tokens=50, elapsed_s=0.010 * stall)
    assert cost.predict_s(decode_tokens=1, attended_tokens=50) == pytest.approx(0.010, rel=0.1)


def test_ten_times_slower_outliers_change_predictions_little() -> None:
    dice = random.Random(3)
    cost = StepCost()
    train(cost, CPU, 1500, dice, outliers=0.02)
    assert worst_error(cost, CPU, dice) < 0.15


def test_a_lasting_change_is_followed() -> None:
    dice = random.Random(4)
    cost = StepCost()
    train(cost, CPU, 800, dice)
    slower = tuple(3 * rate for rate in CPU)
    train(cost, slower, 1500, dice)  # type: ignore[arg-type]
    assert worst_error(cost, slower, dice) < 0.25  # type: ignore[arg-type]


def test_prefill_is_still_known_after_an_hour_of_decoding() -> None:
    dice = random.Random(5)
    cost = StepCost()
    train(cost, CPU, 800, dice)
    before_s = cost.prefill_s(100, position=0)
    for _ in range(20_000):
        decodes = dice.randint(1, 8)
        attended = decodes * dice.randint(50, 1500)
        cost.observe(
            decode_tokens=decodes,
            prefill_tokens=0,
            attended_tokens=attended,
            elapsed_s=true_s(CPU, decodes, 0, attended),
        )
    assert cost.prefill_s(100, position=0) == pytest.approx(before_s, rel=0.15)


def test_a_step_without_a_duration_teaches_nothing() -> None:
    cost = StepCost()
    rates = cost.rates
    for elapsed_s in (0.0, -1.0):
        cost.observe(decode_tokens=1, prefill_tokens=0, attended_tokens=1, elapsed_s=elapsed_s)
    assert cost.rates == rates


@pytest.mark.parametrize(("rates", "least", "most"), [(GPU, 400, 780), (SLOW, 22, 36)])
def test_prefill_found_cheaper_than_assumed_gets_more_even_under_constant_load(
    rates: Rates, least: int, most: int
) -> None:
    """Eight streams and an endless prompt: a budget that repeats itself would teach nothing."""
    config = SchedulerConfig(max_step_tokens=2048)
    cost = StepCost()
    granted = []
    for _ in range(400):
        plan = StepPlan(decode_tokens=8, attended_tokens=8 * 500)
        count = PrefillAllowance(config, cost, plan).grant(1000, 10**6)
        granted.append(count)
        attended = 8 * 500 + attended_tokens(1000, count)
        elapsed_s = true_s(rates, 8, count, attended)
        cost.observe(
            decode_tokens=8, prefill_tokens=count, attended_tokens=attended, elapsed_s=elapsed_s
        )
    assert granted[0] == config.min_prefill_tokens
    assert least <= granted[-1] <= most
    assert max(granted) <= most * 1.1


costs = st.builds(
    lambda seed, limit: _trained(seed, limit), st.integers(0, 20), st.sampled_from([None, 64])
)


def _trained(seed: int, limit: int | None) -> StepCost:
    dice = random.Random(seed)
    cost = StepCost(attend_limit=limit)
    train(cost, dice.choice([CPU, GPU, SLOW]), 60, dice)
    return cost


@given(costs, st.integers(1, 64), st.floats(1.0, 8.0), st.integers(0, 20_000))
def test_the_prefill_budget_is_the_most_that_keeps_within_the_stretch(
    cost: StepCost, decodes: int, stretch: float, position: int
) -> None:
    attended = decodes * 300
    budget = cost.prefill_budget(
        decode_tokens=decodes, decode_attended=attended, stretch=stretch, position=position
    )
    alone_s = cost.predict_s(decode_tokens=decodes, attended_tokens=attended)

    def with_prefill_s(tokens: int) -> float:
        return alone_s + cost.prefill_s(tokens, position)

    assert with_prefill_s(budget) <= stretch * alone_s * (1 + 1e-9)
    assert with_prefill_s(budget + 1) > stretch * alone_s * (1 - 1e-9)


def test_a_token_costs_more_far_into_a_long_prompt() -> None:
    cost = _trained(1, None)
    ask = {"decode_tokens": 8, "decode_attended": 800, "stretch": 3.0}
    near = cost.prefill_budget(position=0, **ask)  # type: ignore[arg-type]
    far = cost.prefill_budget(position=100_000, **ask)  # type: ignore[arg-type]
    assert far < near


def test_an_unbounded_stretch_and_a_free_token_give_no_bound() -> None:
    cost = StepCost()
    ask = {"decode_tokens": 1, "decode_attended": 1, "position": 0}
    assert cost.prefill_budget(stretch=math.inf, **ask) > 10**9
    cost.rates = (1.0, 1.0, 0.0, 0.0)
    assert cost.prefill_budget(stretch=2.0, **ask) > 10**9


@given(st.integers(0, 50), st.integers(0, 50), st.one_of(st.none(), st.integers(1, 60)))
def test_attended_tokens_are_summed_in_closed_form(
    start: int, count: int, limit: int | None
) -> None:
    seen = [min(p + 1, limit or p + 1) for p in range(start, start + count)]
    assert attended_tokens(start, count, limit) == sum(seen)
