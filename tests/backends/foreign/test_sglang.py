"""SGLang's native API: what is asked, what is read, how it is told to stop."""

from collections.abc import AsyncIterator
from contextlib import aclosing, asynccontextmanager

import msgspec
import pytest

from steelyard.backends.http.client import HttpClient
from steelyard.backends.http.config import HttpConfig
from steelyard.backends.http.engine import HttpEngine
from steelyard.backends.remote import RemoteConfig
from steelyard.backends.sglang import SglangDialect
from steelyard.contract.errors import ContextTooLong, EngineFailed, EngineStarting

from .sglang_stub import SglangStub, sglang_stub
from .stage import END_ID, VOCAB_SIZE, ask, collect, text_of


@asynccontextmanager
async def connected(stub: SglangStub) -> AsyncIterator[HttpEngine]:
    config = RemoteConfig(
        served_as="letters", context_tokens=8192, vocab_size=VOCAB_SIZE, end_token_ids=(END_ID,)
    )
    engine = HttpEngine(HttpClient(HttpConfig(url=stub.url)), SglangDialect(config))
    await engine.connect(timeout_s=5)
    try:
        yield engine
    finally:
        await engine.close()


@pytest.mark.parametrize("is_incremental", [True, False])
async def test_tokens_are_read_whether_events_hold_all_or_what_is_new(is_incremental) -> None:
    async with (
        sglang_stub(SglangStub(is_incremental=is_incremental)) as stub,
        connected(stub) as engine,
    ):
        chunks = await collect(engine, ask())
        assert engine.info.can_continue
        assert engine.info.context_tokens == 2048
    assert text_of(chunks) == "abc"
    assert [chunk.start for chunk in chunks] == [0, 1, 2]
    assert chunks[-1].finish_reason == "length"
    assert chunks[-1].usage is not None
    assert chunks[-1].usage.cached_tokens == 1


async def test_requests_are_asked_in_its_own_words() -> None:
    async with sglang_stub() as stub, connected(stub) as engine:
        request = ask(top_k=0, min_tokens=2, stop_token_ids=(5,), seed=-1)
        request = msgspec.structs.replace(request, cache_salt="tenant", priority=-1)
        await collect(engine, request)
    (asked,) = stub.asked
    assert asked["input_ids"] == list(b"Hi")
    assert asked["extra_key"] == "tenant"
    assert asked["priority"] == -1
    params = asked["sampling_params"]
    assert (params["max_new_tokens"], params["min_new_tokens"]) == (3, 2)
    assert params["top_k"] == -1
    assert params["stop_token_ids"] == [5]
    assert params["sampling_seed"] >= 0


async def test_a_stream_is_continued_after_what_was_emitted() -> None:
    async with sglang_stub(SglangStub(answer="c")) as stub, connected(stub) as engine:
        chunks = await collect(engine, ask(emitted="ab"))
    assert stub.asked[0]["input_ids"] == list(b"Hiab")
    assert stub.asked[0]["sampling_params"]["max_new_tokens"] == 1
    assert [(chunk.start, chunk.finish_reason) for chunk in chunks] == [(2, "length")]


@pytest.mark.parametrize("is_incremental", [True, False])
async def test_log_probabilities_come_with_their_tokens(is_incremental) -> None:
    async with (
        sglang_stub(SglangStub(is_incremental=is_incremental)) as stub,
        connected(stub) as engine,
    ):
        chunks = await collect(engine, ask(logprobs=1))
    for chunk in chunks:
        assert chunk.logprobs is not None
        assert chunk.logprobs[0].logprob == -0.5
        assert chunk.logprobs[0].top_ids == chunk.token_ids


async def test_a_stream_that_is_closed_early_is_aborted_by_name() -> None:
    stub = SglangStub(answer="a" * 50, delay_s=0.01)
    async with sglang_stub(stub), connected(stub) as engine:
        request = ask(max_tokens=50)
        async with aclosing(engine.generate(request)) as chunks:
            await anext(chunks)
        await engine.close()
    assert stub.aborted == [request.request_id]


@pytest.mark.parametrize(
    ("finish", "error"),
    [
        ({"type": "abort", "message": "out of memory", "status_code": 500}, EngineFailed),
        ({"type": "abort", "message": "Aborted"}, EngineFailed),
    ],
)
async def test_a_request_that_it_gave_up_is_no_complete_answer(finish, error) -> None:
    async with sglang_stub(SglangStub(finish=finish)) as stub, connected(stub) as engine:
        with pytest.raises(error):
            await collect(engine, ask())


async def test_a_lost_token_is_noticed() -> None:
    class Losing(SglangStub):
        def events(self, body):
            first, _, third = super().events(body)
            return [first, third]

    async with sglang_stub(Losing()) as stub, connected(stub) as engine:
        with pytest.raises(EngineFailed):
            await collect(engine, ask())


async def test_its_refusals_are_translated() -> None:
    async with sglang_stub() as stub, connected(stub) as engine:
        stub.refuse_with = 400
        with pytest.raises(ContextTooLong):
            await collect(engine, ask())
        stub.refuse_with = 503
        with pytest.raises(EngineStarting):
            await collect(engine, ask())


async def test_its_metrics_are_the_status() -> None:
    async with sglang_stub() as stub, connected(stub) as engine:
        status = await engine.status()
    assert (status.running, status.waiting) == (3, 2)
    assert (status.kv_blocks_used, status.kv_blocks_total) == (1000, 4000)
    assert (status.prompt_tokens_total, status.produced_tokens_total) == (70, 50)
    assert status.epoch == "sglang-1700000000.000"
