"""Each planted bottleneck shows in /metrics where it should, and nowhere else."""

import asyncio
import re

import pytest

from .conftest import StartMock
from .wire import ask, completion

Metrics = dict[str, float]


async def measure(start_mock: StartMock, name: str, requests: int, **keys: object) -> Metrics:
    """Metrics at the end of a burst, with the most seen of each gauge during it."""
    server = await start_mock(bottleneck=name, ttft_ms=10, itl_ms=2, output_tokens=20, **keys)
    burst = asyncio.gather(*(completion(server.url) for _ in range(requests)))
    most: Metrics = {}
    while not burst.done():
        for key, value in (await read(server.url)).items():
            most[key] = max(most.get(key, 0.0), value)
        await asyncio.sleep(0.01)
    last = await read(server.url)
    for family in ("ttft", "queue", "prefill", "gap", "door_ttft"):
        prefix = _NAMES[family]
        most[family] = last[f"{prefix}_sum"] / last[f"{prefix}_count"]
    return most


_NAMES = {
    "ttft": "vllm:time_to_first_token_seconds",
    "queue": "vllm:request_queue_time_seconds",
    "prefill": "vllm:request_prefill_time_seconds",
    "gap": "vllm:inter_token_latency_seconds",
    "door_ttft": "steelyard_time_to_first_token_seconds",
}


async def read(url: str) -> Metrics:
    page = (await ask(url, "GET", "/metrics")).body.decode()
    return {
        found[1]: float(found[2])
        for line in page.splitlines()
        if (found := re.fullmatch(r"([\w:]+)(?:\{[^}]*\})? (\S+)", line)) and "_bucket" not in line
    }


async def test_queue_bound_requests_wait_for_slots(start_mock: StartMock) -> None:
    seen = await measure(start_mock, "queue", 16)
    assert seen["vllm:num_requests_waiting"] >= 8
    assert seen["steelyard_engine_waiting"] >= 8
    assert seen["queue"] > 2 * seen["prefill"]


async def test_prefill_bound_requests_wait_for_their_first_token(start_mock: StartMock) -> None:
    seen = await measure(start_mock, "prefill", 8, prefill_tokens_per_s=100)
    assert seen["vllm:num_requests_waiting"] == 0
    assert seen["queue"] < 0.001
    assert seen["prefill"] > 0.05


async def test_decode_bound_gaps_grow(start_mock: StartMock) -> None:
    seen = await measure(start_mock, "decode", 8)
    assert seen["gap"] > 3 * 0.002
    assert seen["queue"] < 0.001


async def test_kv_bound_memory_is_full_and_requests_are_preempted(start_mock: StartMock) -> None:
    seen = await measure(start_mock, "kv", 8, kv_tokens=60)
    assert seen["vllm:kv_cache_usage_perc"] > 0.8
    assert seen["vllm:num_preemptions_total"] >= 1
    assert seen["steelyard_engine_preemptions_total"] >= 1


async def test_gateway_bound_clients_wait_though_the_engine_does_not(
    start_mock: StartMock,
) -> None:
    seen = await measure(start_mock, "gateway", 8, gateway_us_per_event=2000)
    assert seen["ttft"] < 0.02
    assert seen["door_ttft"] > seen["ttft"] + 0.005
    assert seen["vllm:num_requests_waiting"] == 0


@pytest.mark.parametrize(("style", "absent"), [("vllm", "steelyard_"), ("steelyard", "vllm:")])
async def test_metrics_speak_one_dialect_when_asked(
    start_mock: StartMock, style: str, absent: str
) -> None:
    server = await start_mock(metrics=style)
    page = (await ask(server.url, "GET", "/metrics")).body.decode()
    assert absent not in page
    assert "mock_timing_error_seconds" in page
