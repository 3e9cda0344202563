"""The benchmark's statistics: quantiles, rates, ratios, and what a step could cost at best."""

import math

import pytest
from benchmarks.engines import measures
from benchmarks.engines.costs import ModelSize, best_tokens_per_s
from benchmarks.engines.engine import WeightBits
from benchmarks.engines.figures import quantile, ratio_of, spread_of
from benchmarks.engines.jobs import Stream
from benchmarks.engines.prompts import Prompts
from benchmarks.engines.roofline import Roofline, parse_rates
from hypothesis import given
from hypothesis import strategies as st

S = 1_000_000_000


def stream(worker: int, sent: int, stamps: list[int], *, end: int | None = None) -> Stream:
    """Of one token per stamp; times in seconds."""
    return Stream(
        worker=worker,
        sent_ns=sent * S,
        end_ns=(stamps[-1] if end is None else end) * S,
        token_ns=[stamp * S for stamp in stamps],
        completion_tokens=len(stamps),
    )


@given(values=st.lists(st.floats(-1e6, 1e6), min_size=1), share=st.floats(0, 1))
def test_a_quantile_is_a_measured_value_that_enough_values_do_not_exceed(
    values: list[float], share: float
) -> None:
    found = quantile(values, share)
    assert found in values
    assert sum(value <= found for value in values) >= share * len(values) - 1e-9
    assert sum(value < found for value in values) <= share * len(values)


def test_quantiles_of_few_values() -> None:
    assert quantile([4, 1, 3, 2], 0.5) == 2
    assert quantile([1, 2, 3], 0.99) == 3
    assert math.isnan(quantile([], 0.5))


def test_a_ratio_spreads_over_rounds_that_both_have() -> None:
    ratio = ratio_of({0: 10.0, 1: 20.0, 2: 12.0}, {0: 5.0, 1: 8.0, 3: 6.0})
    assert ratio.value == 12.0 / 6.0
    assert (ratio.low, ratio.high) == (2.0, 2.5)


def test_a_ratio_without_common_rounds_has_no_spread() -> None:
    assert ratio_of({0: 10.0}, {1: 5.0}).low == 2.0


def test_a_spread_keeps_the_extremes() -> None:
    spread = spread_of([3.0, 1.0, 2.0])
    assert (spread.median, spread.low, spread.high, spread.rounds) == (2.0, 1.0, 3.0, 3)


def test_the_steady_rate_ends_when_the_first_worker_has_nothing_left() -> None:
    streams = [
        stream(0, 0, [1, 2, 3, 4]),
        stream(1, 0, [2, 4, 6, 8]),
    ]
    assert measures.steady_rate(streams) == pytest.approx((4 + 2) / 4)
    assert measures.whole_rate(streams) == pytest.approx(8 / 8)


def test_a_worker_between_two_requests_is_still_at_work() -> None:
    streams = [stream(0, 0, [1, 2]), stream(0, 2, [3, 4]), stream(1, 0, [2, 4])]
    assert measures.steady_rate(streams) == pytest.approx(6 / 4)


def test_withheld_text_counts_by_the_servers_usage() -> None:
    half = stream(0, 0, [1, 2])
    half.completion_tokens = 4
    assert measures.steady_rate([half, stream(1, 0, [1])]) == pytest.approx((2 + 1) / 1)


def test_latencies_and_gaps() -> None:
    one = stream(0, 1, [3, 4, 7], end=8)
    assert measures.ttft_s(one) == 2.0
    assert measures.latency_s(one) == 7.0
    assert measures.gaps_s(one) == [1.0, 3.0]
    assert measures.gaps_before_s(one, 4 * S) == [1.0]
    assert measures.gaps_during_s(one, 5 * S, 6 * S) == [3.0]


def test_an_answer_without_text_has_its_first_token_at_the_end() -> None:
    assert measures.ttft_s(stream(0, 1, [], end=3)) == 2.0


SIZE = ModelSize(
    layer_weights=106_168_320, head_weights=28_311_552, kv_elements=11_520, query_elements=17_280
)
MACHINE = Roofline(2, 51.5e9, {"fp32": 224e9, "bf16": 998e9}, "as published")


@pytest.mark.parametrize(("bits", "tokens_per_s"), [(32, 96), (16, 191), (8.5, 360)])
def test_one_sequence_is_bound_by_reading_the_weights(bits: float, tokens_per_s: float) -> None:
    kind = WeightBits(bits, bits, "fp32" if bits == 32 else "bf16")
    best = best_tokens_per_s(SIZE, kind, MACHINE, batch=1, context_tokens=0)
    assert best == pytest.approx(tokens_per_s, rel=0.01)


def test_many_sequences_also_read_their_keys_and_values() -> None:
    best = best_tokens_per_s(
        SIZE, WeightBits(16, 16, "bf16"), MACHINE, batch=16, context_tokens=192
    )
    assert best == pytest.approx(2_420, rel=0.01)


def test_very_many_sequences_are_bound_by_the_dot_products() -> None:
    best = best_tokens_per_s(
        SIZE, WeightBits(16, 16, "bf16"), MACHINE, batch=4096, context_tokens=1
    )
    assert best == pytest.approx(998e9 / (2 * 134_479_872), rel=0.01)


def test_a_kind_of_dot_product_that_is_missing_is_charged_as_float32() -> None:
    assert MACHINE.operations_per_s("int8") == 224e9


def test_rates_are_read_from_lines() -> None:
    assert parse_rates("bytes 1.5e+10\nfp32 2e11\n") == {"bytes": 1.5e10, "fp32": 2e11}


def test_prompts_repeat_with_their_seed_and_only_then() -> None:
    first, second = Prompts("decode", 1), Prompts("decode", 1)
    assert first.ids(50) == second.ids(50) != first.ids(50)
    assert Prompts("decode", 2).ids(50) != Prompts("decode", 1).ids(50)


def test_prompts_that_share_a_beginning_share_no_more() -> None:
    one, other = Prompts("prefix", 0).sharing(2, shared_tokens=30, own_tokens=10)
    assert one[:30] == other[:30] and len(one) == len(other) == 40
    assert one[30] != other[30]
