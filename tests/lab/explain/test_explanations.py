"""The bound is named from what servers publish, and what they do not publish is said."""

import msgspec
import pytest

from steelyard.lab.audit import Audit, Check
from steelyard.lab.explain import BOUNDS, explain, explanation_report
from steelyard.lab.result import RequestTable, RunResult
from steelyard.lab.server_metrics import GaugeSeen, HistogramGrowth, ServerMetrics
from steelyard.lab.stats import Estimate, Summary

from ..judge.results import made_up_run


def constant(value: float) -> Summary:
    estimate = Estimate(value, value, value)
    return Summary(100, estimate, value, value, {f"p{p}": estimate for p in (50, 90, 95, 99)})


def run_with(
    metrics: ServerMetrics | None,
    *,
    e2e_ms: float = 1000,
    ttft_ms: float = 200,
    fastest_ttft_ms: float = 100,
    fastest_tpot_ms: float = 10,
    check: Check | None = None,
) -> RunResult:
    """100 requests of 16 tokens, 10 per second."""
    run = made_up_run()
    table = RequestTable(
        session=[0, 1],
        turn=[0, 0],
        scheduled_s=[0.0, 0.1],
        outcome=["complete"] * 2,
        prompt_tokens=[40, 40],
        output_tokens=[16, 16],
        ttft_ms=[fastest_ttft_ms] * 2,
        tpot_ms=[fastest_tpot_ms] * 2,
        itl_p99_ms=[20.0] * 2,
        e2e_ms=[e2e_ms] * 2,
        lag_ms=[0.0] * 2,
    )
    return msgspec.structs.replace(
        run,
        counts=msgspec.structs.replace(run.counts, requests=100, complete=100),
        tokens=msgspec.structs.replace(run.tokens, output=1600),
        latencies={
            "e2e_ms": constant(e2e_ms),
            "e2e_sent_ms": constant(e2e_ms),
            "ttft_ms": constant(ttft_ms),
            "ttft_sent_ms": constant(ttft_ms),
        },
        requests=table,
        server_metrics=metrics,
        audit=Audit(is_valid=check is None, reasons=[], labels=[], checks=[check] if check else []),
    )


def vllm(
    *,
    queue_s: float = 0.0,
    prefill_s: float = 0.1,
    decode_s: float = 0.15,
    kv: float = 0.3,
    preemptions: float = 0,
) -> ServerMetrics:
    return ServerMetrics(
        scrapes=20,
        gauges={
            "vllm:num_requests_waiting": GaugeSeen(queue_s * 10, 9),
            "vllm:num_requests_running": GaugeSeen(3, 5),
            "vllm:kv_cache_usage_perc": GaugeSeen(kv / 2, kv),
        },
        counters={"vllm:num_preemptions_total": preemptions},
        histograms={
            "vllm:request_queue_time_seconds": HistogramGrowth(100, 100 * queue_s),
            "vllm:request_prefill_time_seconds": HistogramGrowth(100, 100 * prefill_s),
            "vllm:request_decode_time_seconds": HistogramGrowth(100, 100 * decode_s),
        },
    )


@pytest.mark.parametrize(
    ("bound", "metrics", "e2e_ms"),
    [
        ("queue", vllm(queue_s=0.7), 960),
        ("kv", vllm(queue_s=0.7, kv=0.98), 960),
        ("kv", vllm(decode_s=0.8, preemptions=9), 950),
        ("prefill", vllm(prefill_s=0.8), 960),
        ("decode", vllm(decode_s=0.8), 910),
        ("gateway", vllm(), 960),
    ],
)
def test_the_part_that_load_makes_longest_is_the_bound(
    bound: str, metrics: ServerMetrics, e2e_ms: float
) -> None:
    explanation = explain(run_with(metrics, e2e_ms=e2e_ms))
    assert explanation.bound == bound
    assert explanation.is_limit


def test_without_excess_nothing_is_called_a_limit() -> None:
    explanation = explain(run_with(vllm(decode_s=0.15), e2e_ms=252))
    assert explanation.bound == "decode"
    assert not explanation.is_limit
    assert "no limit is reached" in explanation.words


def test_a_client_that_failed_its_audit_is_the_bound_whatever_the_server_says() -> None:
    late = Check(name="loop_lag", status="fail", message="the event loop was late by 40 ms")
    explanation = explain(run_with(vllm(queue_s=0.7), e2e_ms=960, check=late))
    assert explanation.bound == "client"
    assert "client: the event loop was late by 40 ms" in explanation.evidence


def test_waiting_requests_become_waiting_time_where_no_histogram_says_so() -> None:
    for waiting, running in (
        ("sglang:num_queue_reqs", "sglang:num_running_reqs"),
        ("llamacpp:requests_deferred", "llamacpp:requests_processing"),
        ("steelyard_engine_waiting", "steelyard_engine_running"),
    ):
        metrics = ServerMetrics(
            scrapes=9,
            gauges={waiting: GaugeSeen(7, 9), running: GaugeSeen(3, 4)},
            counters={},
            histograms={},
        )
        explanation = explain(run_with(metrics, ttft_ms=800))
        assert explanation.bound == "queue"
        queue = next(part for part in explanation.parts if part.name == "queue")
        assert queue.mean_ms == pytest.approx(700)
        assert any("KV memory" in sentence for sentence in explanation.unknown)


def test_parts_of_a_request_add_up_to_its_time() -> None:
    for metrics in (vllm(queue_s=0.2, decode_s=0.4), None):
        explanation = explain(run_with(metrics))
        known = [part.mean_ms for part in explanation.parts if part.mean_ms is not None]
        assert sum(known) == pytest.approx(1000)


def test_a_server_without_metrics_is_explained_as_far_as_the_client_sees() -> None:
    explanation = explain(run_with(None))
    assert explanation.bound in BOUNDS
    assert "shows no metrics" in explanation.unknown[0]
    table = explanation_report(explanation).tables[0]
    assert ("queue", "not known", "", "", "") in table.rows


def test_a_constant_number_of_users_shows_what_decoding_takes_alone_when_they_leave() -> None:
    busy = run_with(vllm(decode_s=0.8), e2e_ms=910, fastest_tpot_ms=50)
    in_flight = [16.0] * 8 + [1.0, 1.0]
    tokens = [32] * 8 + [10, 10]  # 50 ms per token among others, 10 ms alone
    draining = msgspec.structs.replace(
        busy,
        timeline=msgspec.structs.replace(
            busy.timeline, bin_s=0.1, in_flight=in_flight, output_tokens=tokens
        ),
    )
    assert not explain(busy).is_limit
    explanation = explain(draining)
    assert (explanation.bound, explanation.is_limit) == ("decode", True)


def test_a_run_with_one_user_says_what_computing_takes() -> None:
    lone = msgspec.structs.replace(
        run_with(None),
        latencies={"ttft_sent_ms": constant(100), "tpot_ms": constant(10)},
    )
    busy = run_with(vllm(decode_s=0.8), e2e_ms=910, fastest_tpot_ms=50)
    assert not explain(busy).is_limit
    explanation = explain(busy, lone)
    assert (explanation.bound, explanation.is_limit) == ("decode", True)
