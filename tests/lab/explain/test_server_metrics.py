"""Pages of metrics become growth and levels; a server without them is no error."""

import asyncio

import pytest
from hypothesis import given
from hypothesis import strategies as st

from steelyard.lab.bench.session import Session, SessionOptions
from steelyard.lab.explain import explain
from steelyard.lab.load import ClosedLoop, Fixed, Synthetic, Workload
from steelyard.lab.mock.distributions import parse_distribution
from steelyard.lab.server_metrics import MetricsWatch, sum_up

from ..client.conftest import Start, start_mock  # noqa: F401 - a fixture


def page(waiting: float, total: float, seconds: float, count: float) -> bytes:
    return f"""\
# HELP vllm:num_requests_waiting Number.
# TYPE vllm:num_requests_waiting gauge
vllm:num_requests_waiting{{engine="0",model_name="a b"}} {waiting}
vllm:num_requests_waiting{{engine="1",model_name="a b"}} 1.0
# TYPE vllm:kv_cache_usage_perc gauge
vllm:kv_cache_usage_perc{{engine="0"}} 0.5
vllm:kv_cache_usage_perc{{engine="1"}} 0.25
# TYPE vllm:num_preemptions_total counter
vllm:num_preemptions_total{{engine="0"}} {total} 1700000000000
# TYPE vllm:request_queue_time_seconds histogram
vllm:request_queue_time_seconds_bucket{{le="+Inf"}} {count}
vllm:request_queue_time_seconds_sum {seconds!r}
vllm:request_queue_time_seconds_count {count}
# TYPE python_gc_objects_collected_total counter
python_gc_objects_collected_total 9
""".encode()


def test_labels_are_added_and_shares_are_not() -> None:
    metrics = sum_up([page(1, 5, 1.0, 2), page(3, 9, 4.0, 5)])
    assert metrics is not None
    assert metrics.gauges["vllm:num_requests_waiting"].mean == 3
    assert metrics.gauges["vllm:num_requests_waiting"].maximum == 4
    assert metrics.gauges["vllm:kv_cache_usage_perc"].maximum == 0.5
    assert metrics.counters == {"vllm:num_preemptions_total": 4}
    assert metrics.histograms["vllm:request_queue_time_seconds"].mean == 1.0


def test_levels_are_those_of_the_measured_time_and_growth_that_of_the_run() -> None:
    pages = [page(0, 0, 0.0, 0), page(7, 2, 3.0, 4), page(0, 3, 4.0, 5)]
    metrics = sum_up(pages, pages[1:2])
    assert metrics is not None
    assert metrics.gauges["vllm:num_requests_waiting"].mean == 8
    assert metrics.counters["vllm:num_preemptions_total"] == 3


def test_a_server_that_began_anew_counts_from_zero() -> None:
    metrics = sum_up([page(0, 100, 50.0, 20), page(0, 3, 1.0, 2)])
    assert metrics is not None
    assert metrics.counters["vllm:num_preemptions_total"] == 3


@given(st.lists(st.binary(max_size=200), max_size=4))
def test_pages_that_hold_anything_else_are_no_metrics(pages: list[bytes]) -> None:
    assert sum_up(pages) is None


async def test_nobody_who_listens_is_no_error() -> None:
    watch = MetricsWatch("http://127.0.0.1:1", {})
    await asyncio.wait_for(watch.run(), 5)
    assert await watch.result(0, 1) is None


async def test_a_session_keeps_what_the_server_said(start_mock: Start) -> None:  # noqa: F811
    mock = await start_mock(
        ttft_ms=parse_distribution(20), itl_ms=parse_distribution(1), slots=1, metrics="vllm"
    )
    session = await Session.open(SessionOptions(url=mock.url))
    workload = Workload(
        arrivals=ClosedLoop(6, sessions=30), content=Synthetic(input=Fixed(20), output=Fixed(16))
    )
    run = (await session.run(workload)).result
    assert run.server_metrics is not None
    counted = run.server_metrics.histograms["vllm:request_queue_time_seconds"].count
    assert counted == run.counts.requests
    explanation = explain(run)
    # On a busy machine the client may be late, and says so first.
    assert explanation.bound in ("queue", "client")


@pytest.mark.parametrize(
    "answer", [b"", b"no http\r\n\r\n", b"HTTP/1.1 200 OK\r\ncontent-length: 99\r\n\r\nx"]
)
async def test_a_server_that_does_not_speak_http_is_no_error(answer: bytes) -> None:
    async def serve(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(answer)
        writer.close()

    async with await asyncio.start_server(serve, "127.0.0.1", 0) as server:
        port = server.sockets[0].getsockname()[1]
        watch = MetricsWatch(f"http://127.0.0.1:{port}", {})
        await watch.run()
        assert await watch.result(0.0, 1.0) is None
