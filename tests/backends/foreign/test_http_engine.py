"""An engine over HTTP while things go wrong: aborts, losses, refusals, deadlines."""

import asyncio
import time
from contextlib import aclosing

import msgspec
import pytest

from steelyard.backends.http.client import HttpClient
from steelyard.backends.http.config import HttpConfig
from steelyard.contract.errors import (
    Cancelled,
    ContextTooLong,
    DeadlineExceeded,
    EngineDraining,
    EngineFailed,
    EngineLost,
    EngineStalled,
    EngineStarting,
    InvalidRequest,
    Overloaded,
    SettingsError,
)

from .stage import (
    ask,
    collect,
    connected,
    endless,
    refusing,
    remote_engine,
    sending,
    staged,
    token,
)

LONG = 100_000


async def test_closing_a_stream_early_is_noticed_by_the_server() -> None:
    async with staged(endless) as stage, connected(stage.url) as engine:
        async with aclosing(engine.generate(ask(max_tokens=LONG))) as chunks:
            await anext(chunks)
        await until(lambda: stage.hung_up == 1)
        assert (await engine.status()).running == 0
        assert (await engine.status()).aborted_total == 1


async def test_an_abort_ends_the_iterator_and_the_servers_work() -> None:
    async with staged(endless) as stage, connected(stage.url) as engine:
        request = ask(max_tokens=LONG)
        chunks = engine.generate(request)
        await anext(chunks)
        await engine.abort(request.request_id)
        with pytest.raises(Cancelled):
            while True:
                await anext(chunks)
        await until(lambda: stage.hung_up == 1)
        await engine.abort("unknown")


async def test_an_abort_before_the_first_byte_ends_it_too() -> None:
    async def silent(stage, request, body):
        await asyncio.sleep(30)

    async with staged(silent) as stage, connected(stage.url) as engine:
        request = ask()
        first = asyncio.ensure_future(collect(engine, request))
        await until(lambda: bool(stage.asked))
        await engine.abort(request.request_id)
        with pytest.raises(Cancelled):
            await first


async def test_silence_is_a_stall() -> None:
    async def silent(stage, request, body):
        await asyncio.sleep(30)

    async with staged(silent) as stage, connected(stage.url, silence_timeout_s=0.1) as engine:
        with pytest.raises(EngineStalled):
            await collect(engine, ask())


async def test_a_deadline_ends_a_stream() -> None:
    async with staged(endless) as stage, connected(stage.url) as engine:
        request = msgspec.structs.replace(ask(max_tokens=LONG), deadline_s=0.05)
        with pytest.raises(DeadlineExceeded):
            await collect(engine, request)
        await until(lambda: stage.hung_up == 1)


async def test_a_drained_engine_finishes_what_it_has_and_takes_no_more() -> None:
    async with staged(endless) as stage, connected(stage.url) as engine:
        chunks = engine.generate(ask(max_tokens=20))
        await anext(chunks)
        draining = asyncio.ensure_future(engine.drain())
        await asyncio.sleep(0)
        with pytest.raises(EngineDraining):
            await collect(engine, ask("other"))
        with pytest.raises(EngineFailed):  # it sends more than was asked for
            async for _ in chunks:
                pass
        await asyncio.wait_for(draining, 5)


async def test_closing_fails_what_runs() -> None:
    async with staged(endless) as stage, connected(stage.url) as engine:
        chunks = engine.generate(ask(max_tokens=LONG))
        await anext(chunks)
        await engine.close()
        with pytest.raises(EngineLost):
            while True:
                await anext(chunks)
        with pytest.raises(EngineLost):
            _ = engine.info


@pytest.mark.parametrize(
    ("status", "body", "headers", "error"),
    [
        (429, None, {"retry-after": "7"}, Overloaded),
        (503, {"error": {"message": "Loading model"}}, {}, EngineStarting),
        (503, None, {"retry-after": "7"}, EngineStarting),
        (500, None, {}, EngineFailed),
        (502, "<html>", {}, EngineFailed),
        (504, None, {}, EngineStalled),
        (400, {"error": {"message": "bad", "param": "top_p"}}, {}, InvalidRequest),
        (422, {"error": {"message": "bad"}}, {}, InvalidRequest),
        (400, {"message": "This model's maximum context length is 10"}, {}, ContextTooLong),
        (400, {"error": {"code": "context_length_exceeded"}}, {}, ContextTooLong),
        (503, {"error": {"code": "engine_draining"}}, {}, EngineDraining),
        (401, {"error": {"code": "invalid_api_key"}}, {}, EngineFailed),
        (403, None, {}, EngineFailed),
        (404, {"error": {"code": "model_not_found"}}, {}, EngineFailed),
        (302, None, {"location": "http://169.254.169.254/"}, EngineFailed),
    ],
)
async def test_statuses_say_what_may_be_done(status, body, headers, error) -> None:
    async with (
        staged(refusing(status, body, **headers)) as stage,
        connected(stage.url) as engine,
    ):
        with pytest.raises(error) as refusal:
            await collect(engine, ask())
    assert type(refusal.value) is error
    if "retry-after" in headers:
        assert refusal.value.delay_s == 7.0


async def test_a_server_that_is_gone_is_absent_at_once_and_found_again() -> None:
    async with staged(sending(token(97, "length"))) as stage:
        engine = remote_engine(stage.url, health_s=30.0)
        epoch = (await engine.connect(timeout_s=5)).epoch
        losing = asyncio.ensure_future(engine.wait_lost())
    with pytest.raises(EngineLost):
        await collect(engine, ask())
    with pytest.raises(EngineLost):
        _ = engine.info
    assert isinstance(await asyncio.wait_for(losing, 5), EngineLost)
    port = int(stage.url.rpartition(":")[2])
    assert port
    async with staged(sending(token(97, "length"))) as other, connected(other.url) as again:
        assert again.info.epoch != epoch
    await engine.close()


async def test_a_server_that_stays_unwell_is_lost() -> None:
    async with staged(endless) as stage:
        engine = remote_engine(stage.url, health_s=0.01)
        await engine.connect(timeout_s=5)
        stage.is_well = False
        assert isinstance(await asyncio.wait_for(engine.wait_lost(), 5), EngineLost)
        with pytest.raises(EngineLost):
            _ = engine.info
        await engine.close()


async def test_connecting_waits_for_a_server_that_is_still_loading() -> None:
    async with staged(endless) as stage:
        stage.is_well = False
        engine = remote_engine(stage.url)
        heard = []
        connecting = asyncio.ensure_future(
            engine.connect(timeout_s=5, on_progress=lambda progress: heard.append(progress.what))
        )
        await until(lambda: bool(heard))
        stage.is_well = True
        assert (await connecting).model == "letters"
        await engine.close()


async def test_connecting_ends_after_its_time() -> None:
    engine = remote_engine("http://127.0.0.1:1")
    began_s = time.monotonic()
    with pytest.raises(EngineStalled):
        await engine.connect(timeout_s=0.3)
    assert time.monotonic() - began_s < 3


@pytest.mark.parametrize(
    ("options", "probe", "param"),
    [
        ({"model": "other"}, None, "remote.model"),
        ({"mode": "tokens"}, refusing(400, {"error": {"message": "no ids"}}), "remote.mode"),
        ({}, refusing(401), "remote.api_key_file"),
        ({}, refusing(404), "remote.url"),
        ({}, refusing(301), "remote.url"),
        ({}, refusing(400, {"error": {"message": "no"}}), "remote.url"),
    ],
)
async def test_what_waiting_cannot_help_is_said_at_once(options, probe, param) -> None:
    more = {} if probe is None else {"probe": probe}
    async with staged(endless, **more) as stage:
        engine = remote_engine(stage.url, **options)
        refusals = []
        engine.on_refusal = refusals.append
        with pytest.raises(SettingsError) as refusal:
            await engine.connect(timeout_s=5)
        assert refusal.value.param == param
        assert refusals == [refusal.value]
        await engine.close()


async def test_the_api_key_goes_along_and_shows_up_nowhere_else() -> None:
    key = "sk-never-to-be-seen"
    async with (
        staged(refusing(500, {"error": {"message": "trouble"}})) as stage,
        connected(stage.url, api_key=key) as engine,
    ):
        with pytest.raises(EngineFailed) as refusal:
            await collect(engine, ask())
        assert stage.headers[-1]["authorization"] == f"Bearer {key}"
        assert key not in repr(engine._client.config)
        assert key not in str(refusal.value)
        assert key not in str(engine.info)


async def test_the_limit_of_the_server_counts_where_it_is_lower() -> None:
    async with staged(endless, max_model_len=1000) as stage, connected(stage.url) as engine:
        assert engine.info.context_tokens == 1000
    async with staged(endless, max_model_len=100_000) as stage, connected(stage.url) as engine:
        assert engine.info.context_tokens == 8192


async def test_an_idle_connection_that_was_closed_meanwhile_costs_no_request() -> None:
    answer = b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\n{}"
    connections = 0

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal connections
        connections += 1
        await reader.readuntil(b"\r\n\r\n")
        writer.write(answer)
        await writer.drain()
        await reader.readuntil(b"\r\n\r\n")  # takes a second request, and closes instead
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    client = HttpClient(HttpConfig(url=f"http://127.0.0.1:{port}"))
    for _ in range(2):
        assert await client.get_json("/", timeout_s=5) == {}
    assert connections == 2
    await client.close()
    server.close()


async def until(claim, timeout_s: float = 5.0) -> None:
    """Wait until `claim` holds."""
    end_s = time.monotonic() + timeout_s
    while not claim():
        assert time.monotonic() < end_s, "it never happened"
        await asyncio.sleep(0.002)
