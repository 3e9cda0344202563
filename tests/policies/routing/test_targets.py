"""What a replica is doing, and when it would have a first token."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from steelyard.contract import EngineInfo, EngineStatus
from steelyard.policies.routing import Load, Target
from steelyard.policies.ttft_model import TtftModel


def info(**changes: int) -> EngineInfo:
    return EngineInfo(
        model="m", context_tokens=1000, vocab_size=9, end_token_ids=(), epoch="e", **changes
    )


def test_the_model_learns_base_and_slope() -> None:
    model = TtftModel()
    for tokens in [100, 2000, 500, 8000, 50] * 20:
        model.observe(tokens, 0.1 + 0.002 * tokens)
    assert model.predict_s(4000) == pytest.approx(8.1, rel=0.02)
    assert model.base_s == pytest.approx(0.1, abs=0.1)


def test_requests_of_one_length_do_not_make_the_slope_wild() -> None:
    model = TtftModel()
    for _ in range(200):
        model.observe(500, 0.4)
    assert model.predict_s(500) == pytest.approx(0.4, rel=0.1)
    assert 0 <= model.predict_s(4000) < 4.0


def test_the_model_follows_a_replica_that_became_slower() -> None:
    model = TtftModel()
    for _ in range(200):
        model.observe(1000, 0.1)
    for _ in range(200):
        model.observe(1000, 1.0)
    assert model.predict_s(1000) == pytest.approx(1.0, rel=0.1)


def test_one_wild_time_changes_little() -> None:
    model = TtftModel()
    for tokens in [100, 1000] * 50:
        model.observe(tokens, 0.01 + 1e-4 * tokens)
    before_s = model.predict_s(1000)
    model.observe(1000, 500.0)
    assert model.predict_s(1000) < 1.3 * before_s


@given(st.lists(st.tuples(st.floats(0, 1e6), st.floats(0, 1e4)), max_size=50))
def test_predictions_are_never_negative_nor_fall_with_length(
    seen: list[tuple[float, float]],
) -> None:
    model = TtftModel()
    for tokens, elapsed_s in seen:
        model.observe(tokens, elapsed_s)
    predicted = [model.predict_s(tokens) for tokens in (0, 10, 1e3, 1e6)]
    assert predicted == sorted(predicted) and predicted[0] >= 0


def test_an_unknown_replica_is_expected_to_be_like_the_others() -> None:
    parent = TtftModel()
    known, unknown = TtftModel(parent=parent), TtftModel(parent=parent)
    for tokens in [100, 2000] * 50:
        known.observe(tokens, 0.01 * tokens)
    assert unknown.predict_s(1000) == pytest.approx(known.predict_s(1000), rel=0.05)


def test_a_queue_delays_and_its_end_frees() -> None:
    target = Target(0)
    alone_s = target.predict_ttft_s(1000, 1000, 0.0)
    load = target.begin(0.0, new_tokens=8000, held_tokens=8000)
    assert target.predict_ttft_s(1000, 1000, 0.0) == pytest.approx(
        alone_s + 8000 * target.model.slope_s
    )
    target.first_token(load, 0.1, computed_tokens=None)
    assert target.predict_wait_s(1000, 0.1) == 0.0
    target.end(load, 5.0, has_finished=True)
    target.check_integrity()


def test_a_full_replica_makes_wait_for_a_place() -> None:
    target = Target(0)
    target.describe(info(max_running=2))
    for _ in range(2):
        load = target.begin(0.0, new_tokens=1, held_tokens=1)
        target.first_token(load, 0.0, computed_tokens=None)
    assert target.predict_wait_s(1, 0.0) == pytest.approx(target.service_s / 2)


def test_full_memory_makes_wait_for_others_to_end() -> None:
    target = Target(0)
    target.describe(info(kv_block_tokens=16, kv_blocks_total=100))
    load = target.begin(0.0, new_tokens=1, held_tokens=1000)
    target.first_token(load, 0.0, computed_tokens=None)
    assert target.predict_wait_s(600, 0.0) == 0.0
    assert target.predict_wait_s(1600, 0.0) == pytest.approx(target.service_s)


def test_whoever_waits_in_vain_warns_the_next() -> None:
    target = Target(0)
    target.begin(0.0, new_tokens=1, held_tokens=1)
    assert target.predict_wait_s(1, 10.0) > 9.0


def test_places_that_are_not_told_are_learned_from_a_queue() -> None:
    target = Target(0)
    target.observe(EngineStatus(state="ready", running=7, waiting=0))
    assert target.max_running == 0
    target.observe(EngineStatus(state="ready", running=7, waiting=2))
    assert target.max_running == 7


def test_a_slot_is_given_back_once() -> None:
    target = Target(0)
    load = target.begin(0.0, new_tokens=1, held_tokens=1)
    target.end(load, 1.0, has_finished=False)
    with pytest.raises(AssertionError):
        target.end(load, 1.0, has_finished=False)


STEPS = st.lists(st.tuples(st.sampled_from(["begin", "token", "end"]), st.integers(0, 9)))


@given(STEPS)
def test_books_balance_whatever_the_order(steps: list[tuple[str, int]]) -> None:
    target = Target(0)
    loads: list[Load] = []
    for now_s, (step, which) in enumerate(steps):
        if step == "begin":
            loads.append(target.begin(now_s, new_tokens=which * 0.1, held_tokens=which * 7.3))
        elif loads and step == "token":
            target.first_token(loads[which % len(loads)], now_s, computed_tokens=None)
        elif loads:
            target.end(loads.pop(which % len(loads)), now_s, has_finished=bool(which % 2))
        target.check_integrity()
    for load in loads:
        target.end(load, 1e6, has_finished=True)
    assert target.in_flight == 0 and target.queued_tokens == 0.0 and target.held_tokens == 0.0
