"""What vLLM tells of itself, read off answers that vLLM 0.32 has given."""

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from steelyard.backends.http.config import HttpConfig
from steelyard.backends.http.exposition import Exposition
from steelyard.backends.remote import RemoteConfig
from steelyard.backends.vllm import VllmDialect

from .stage import END_ID, VOCAB_SIZE, Letters, ask

PAGE = b"""\
# HELP process_start_time_seconds Start time of the process since unix epoch in seconds.
# TYPE process_start_time_seconds gauge
process_start_time_seconds 1.79614994555e+09
# TYPE vllm:num_requests_running gauge
vllm:num_requests_running{engine="0",model_name="letters"} 2.0
vllm:num_requests_running{engine="1",model_name="letters"} 1.0
vllm:num_requests_waiting{engine="0",model_name="letters"} 4.0
vllm:num_requests_waiting_by_reason{engine="0",model_name="letters",reason="capacity"} 4.0
vllm:kv_cache_usage_perc{engine="0",model_name="letters"} 0.5
vllm:prefix_cache_queries_total{engine="0",model_name="letters"} 40.0
vllm:prefix_cache_hits_total{engine="0",model_name="letters"} 16.0
vllm:prompt_tokens_total{engine="0",model_name="letters"} 40.0
vllm:prompt_tokens_created{engine="0",model_name="letters"} 1.7961499983580e+09
vllm:generation_tokens_total{engine="0",model_name="letters"} 30.0
vllm:num_preemptions_total{engine="0",model_name="letters"} 1.0
vllm:request_success_total{engine="0",finished_reason="stop",model_name="letters"} 5.0
vllm:request_success_total{engine="0",finished_reason="length",model_name="letters"} 2.0
vllm:cache_config_info{block_size="128",cache_dtype="auto",engine="0",num_gpu_blocks="364"} 1.0
"""


class RecordedVllm:
    """An `HttpClient` whose server has said all this before."""

    config = HttpConfig()

    async def get(self, path: str, *, timeout_s: float) -> bytes:
        return {"/health": b"", "/metrics": PAGE}[path]

    async def get_json(self, path: str, *, timeout_s: float) -> Any:
        models = {"data": [{"id": "letters", "max_model_len": 2048}]}
        return {"/v1/models": models, "/version": {"version": "0.32.0"}}[path]

    async def post_json(self, path: str, body: dict[str, Any], *, timeout_s: float) -> Any:
        choice: dict[str, Any] = {"text": "x", "token_ids": [120]}
        if body.get("return_tokens_as_token_ids"):
            choice["logprobs"] = {"tokens": ["token_id:120"]}
        return {"choices": [choice]}


@pytest.fixture
def dialect() -> VllmDialect:
    config = RemoteConfig(
        served_as="letters",
        mode="tokens",
        context_tokens=8192,
        vocab_size=VOCAB_SIZE,
        end_token_ids=(END_ID,),
    )
    return VllmDialect(config, Letters(), max_running=16)


async def test_its_facts_are_those_of_the_server(dialect: VllmDialect) -> None:
    info = await dialect.open(RecordedVllm())  # type: ignore[arg-type]
    assert (info.kv_block_tokens, info.kv_blocks_total) == (128, 364)
    assert (info.context_tokens, info.max_running) == (2048, 16)
    assert info.can_continue
    assert info.details == {"engine": "vllm", "version": "0.32.0", "kv_dtype": "auto"}
    assert info.epoch == "vllm-1796149945.550", "a server that came back has another"


async def test_its_metrics_are_its_load_summed_over_its_engines(dialect: VllmDialect) -> None:
    client = RecordedVllm()
    await dialect.open(client)  # type: ignore[arg-type]
    load = await dialect.measure(client)  # type: ignore[arg-type]
    assert load is not None
    assert (load.running, load.waiting) == (3, 4)
    assert (load.kv_blocks_used, load.kv_blocks_total) == (182, 364)
    assert (load.prompt_tokens_total, load.cached_tokens_total) == (40, 16)
    assert (load.produced_tokens_total, load.preemptions_total) == (30, 1)
    assert load.finished_total == 7


async def test_priorities_and_salts_are_passed_on(dialect: VllmDialect) -> None:
    await dialect.open(RecordedVllm())  # type: ignore[arg-type]
    request = msgspec.structs.replace(ask(), priority=-2, cache_salt="tenant")
    body = dialect.call(request).body
    assert (body["priority"], body["cache_salt"]) == (-2, "tenant")
    assert "priority" not in dialect.call(ask()).body


@given(st.binary(max_size=300))
def test_any_page_can_be_read(page: bytes) -> None:
    exposition = Exposition(page + b'\na 1\na{b="c"} 2\nab 5\n# a 7\n')
    assert exposition.total("nothing") == 0
    assert exposition.total("a") >= 3 or b"a" in page
    assert exposition.labels("ab") == {}
