"""A request is counted when it comes, while it runs and exactly once when it ends."""

import asyncio

import pytest
from hypothesis import given
from hypothesis import strategies as st

from steelyard.contract import Usage, VirtualClock
from steelyard.contract.errors import (
    Cancelled,
    ContextTooLong,
    DeadlineExceeded,
    EngineLost,
    InternalError,
    InvalidRequest,
    Overloaded,
    SteelyardError,
)
from steelyard.telemetry import Metrics

from .conftest import Scrape


def test_a_finished_request_leaves_its_times_and_tokens(
    metrics: Metrics, clock: VirtualClock
) -> None:
    request = metrics.request("small", tenant="acme")
    clock.jump(0.25)
    request.handed_over(prompt_tokens=100)
    clock.jump(0.5)
    stream = request.stream()
    stream.tokens(1)
    clock.jump(0.125)
    stream.tokens(1)
    clock.jump(0.5)
    stream.tokens(4)
    clock.jump(0.125)
    request.finished("length", Usage(100, 6, 64))

    scrape = Scrape(metrics)
    assert scrape.value("request_queue_seconds_sum") == 0.25
    assert scrape.value("time_to_first_token_seconds_sum") == 0.75
    assert scrape.value("inter_token_latency_seconds_count") == 5
    assert scrape.value("inter_token_latency_seconds_sum") == 0.625
    assert scrape.value("inter_token_latency_seconds_bucket", le="0.15") == 5
    assert scrape.value("inter_token_latency_seconds_bucket", le="0.1") == 0
    assert scrape.value("request_duration_seconds_sum", model="small") == 1.5
    assert scrape.value("prompt_tokens_total") == scrape.value("request_prompt_tokens_sum") == 100
    assert scrape.value("cached_tokens_total") == 64
    assert scrape.value("output_tokens_total") == scrape.value("request_output_tokens_sum") == 6
    assert scrape.value("requests_ended_total", outcome="finished", reason="length") == 1
    for kind, tokens in {"prompt": 100, "cached": 64, "output": 6}.items():
        assert scrape.value("tenant_tokens_total", tenant="acme", kind=kind) == tokens


def test_several_choices_are_one_request_with_one_first_token(
    metrics: Metrics, clock: VirtualClock
) -> None:
    request = metrics.request("small")
    request.handed_over(10)
    streams = [request.stream(), request.stream()]
    for stream in streams:
        clock.jump(0.5)
        stream.tokens(1)
    for stream in streams:
        clock.jump(0.5)
        stream.tokens(1)
    request.finished("stop", Usage(10, 4, 0))
    scrape = Scrape(metrics)
    assert scrape.value("time_to_first_token_seconds_count") == 1
    assert scrape.value("time_to_first_token_seconds_sum") == 0.5
    assert scrape.value("inter_token_latency_seconds_count") == 2
    assert scrape.value("inter_token_latency_seconds_sum") == 2.0
    assert scrape.value("request_output_tokens_sum") == 4


@pytest.mark.parametrize(
    ("error", "outcome", "reason"),
    [
        (InvalidRequest("x"), "rejected", "invalid_value"),
        (Overloaded("x"), "rejected", "overloaded"),
        (InternalError("x"), "rejected", "internal_error"),
        (Cancelled("x"), "cancelled", "disconnect"),
        (DeadlineExceeded("x"), "cancelled", "deadline"),
    ],
)
def test_an_error_before_the_hand_over_is_a_rejection(
    metrics: Metrics, error: SteelyardError, outcome: str, reason: str
) -> None:
    metrics.request("small").failed(error)
    assert Scrape(metrics).value("requests_ended_total", outcome=outcome, reason=reason) == 1


@pytest.mark.parametrize(
    ("error", "tokens", "outcome"),
    [
        (ContextTooLong("x"), 0, "rejected"),
        (Overloaded("x"), 0, "rejected"),
        (EngineLost("x"), 0, "failed"),
        (EngineLost("x"), 3, "failed"),
        (Overloaded("x"), 3, "failed"),
        (InternalError("x"), 3, "failed"),
    ],
)
def test_after_the_hand_over_only_a_refusal_without_tokens_is_a_rejection(
    metrics: Metrics, error: SteelyardError, tokens: int, outcome: str
) -> None:
    request = metrics.request("small")
    request.handed_over(5)
    if tokens:
        request.stream().tokens(tokens)
    request.failed(error)
    scrape = Scrape(metrics)
    assert scrape.value("requests_ended_total", outcome=outcome, reason=error.code) == 1
    assert scrape.value("tenant_tokens_total", kind="output") == tokens
    assert scrape.value("request_duration_seconds_count") == 0


def test_only_the_first_end_counts(metrics: Metrics) -> None:
    request = metrics.request("small")
    request.finished("stop", Usage(1, 1, 1))
    request.cancelled("disconnect")
    request.failed(EngineLost("x"))
    request.finished("stop", Usage(1, 1, 1))
    scrape = Scrape(metrics)
    assert scrape.value("requests_ended_total") == 1
    assert scrape.value("cached_tokens_total") == 1
    assert scrape.value("requests_in_flight") == 0


@pytest.mark.parametrize(
    ("leaves_with", "outcome", "reason"),
    [
        (None, "failed", "internal_error"),
        (ValueError("a bug"), "failed", "internal_error"),
        (Overloaded("x"), "rejected", "overloaded"),
        (asyncio.CancelledError(), "cancelled", "disconnect"),
        (GeneratorExit(), "cancelled", "disconnect"),
    ],
)
def test_leaving_the_block_always_ends_the_request(
    metrics: Metrics, leaves_with: BaseException | None, outcome: str, reason: str
) -> None:
    def serve() -> None:
        with metrics.request("small"):
            if leaves_with is not None:
                raise leaves_with

    if leaves_with is None:
        serve()
    else:
        with pytest.raises(type(leaves_with)):
            serve()
    scrape = Scrape(metrics)
    assert scrape.value("requests_ended_total", outcome=outcome, reason=reason) == 1
    assert scrape.value("requests_in_flight") == 0


_STEPS = st.lists(
    st.tuples(
        st.sampled_from(["begin", "hand over", "tokens", "finish", "fail", "cancel"]),
        st.integers(min_value=0, max_value=7),
        st.integers(min_value=1, max_value=5),
    ),
    max_size=60,
)


@given(_STEPS)
def test_received_is_in_flight_plus_ended_whatever_happens(
    steps: list[tuple[str, int, int]],
) -> None:
    clock = VirtualClock()
    metrics = Metrics(clock=clock)
    requests = []
    sent_tokens = 0
    handed_over, ended_ones = set[int](), set[int]()
    for action, which, count in steps:
        clock.jump(count / 8)
        if action == "begin":
            requests.append(metrics.request(f"model-{which % 3}", tenant=f"tenant-{which % 2}"))
        if not requests:
            continue
        number = which % len(requests)
        request = requests[number]
        if action == "hand over":
            request.handed_over(count)
            handed_over.add(number)
        elif action == "tokens":
            request.stream().tokens(count)
            sent_tokens += count
        elif action == "finish":
            request.finished("stop", Usage(count, count, 0))
        elif action == "fail":
            request.failed([EngineLost("x"), Overloaded("x"), Cancelled("x")][count % 3])
        elif action == "cancel":
            request.cancelled("shutdown")
        if action in ("finish", "fail", "cancel"):
            ended_ones.add(number)
    scrape = Scrape(metrics)
    received = scrape.value("requests_received_total")
    ended = scrape.value("requests_ended_total")
    assert received == len(requests) == scrape.value("requests_in_flight") + ended
    outcomes = ("finished", "failed", "rejected", "cancelled")
    assert ended == sum(scrape.value("requests_ended_total", outcome=o) for o in outcomes)
    assert ended == len(ended_ones)
    assert scrape.value("requests_waiting") == len(requests) - len(handed_over | ended_ones)
    assert ended == scrape.value("tenant_requests_ended_total")
    assert scrape.value("output_tokens_total") == sent_tokens
    for model in scrape.labels("requests_received_total", "model"):
        assert scrape.value("requests_received_total", model=model) == scrape.value(
            "requests_in_flight", model=model
        ) + scrape.value("requests_ended_total", model=model)


def test_connections_accepted_are_open_plus_closed(metrics: Metrics) -> None:
    first, second = metrics.connection(), metrics.connection()
    first.closed("header_timeout")
    first.closed("client")
    scrape = Scrape(metrics)
    assert scrape.value("connections_accepted_total") == 2
    assert scrape.value("connections") == 1
    assert scrape.value("connections_closed_total", reason="header_timeout") == 1
    assert scrape.value("connections_closed_total") == 1
    second.closed("shutdown")
    assert Scrape(metrics).value("connections") == 0


def test_answers_are_counted_by_route_and_status(metrics: Metrics) -> None:
    metrics.http_response("/v1/models", 200)
    metrics.http_response("/v1/models", 200)
    metrics.http_response("/v1/completions", 429)
    scrape = Scrape(metrics)
    assert scrape.value("http_responses_total", route="/v1/models", status="200") == 2
    assert scrape.value("http_responses_total", status="429") == 1
