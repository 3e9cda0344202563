"""Streams of endpoints that break: token ids go on elsewhere, texts end with an error."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager

import pytest

from steelyard.contract.errors import EngineFailed, EngineStarting, Overloaded
from steelyard.gateway.failover import FailoverEngine
from steelyard.telemetry import Metrics

from .stage import Play, ask, breaking, connected, refusing, sending, staged, text_of, token, usage
from .test_remote_streams import DONE, said, text_probe

BROKEN = sending(token(97), token(98), then=breaking)


async def continuing(stage, request, body):
    """Say what is left of `abc` after the prompt `Hi`."""
    rest = b"abc"[len(body["prompt"]) - 2 :]
    events = [token(i) for i in rest[:-1]] + [token(rest[-1], "length")]
    return await sending(*events, usage(2, 3), DONE)(stage, request, body)


@asynccontextmanager
async def together(*plays: Play, **options) -> AsyncIterator[FailoverEngine]:
    """One engine over endpoints that are asked in turn."""
    failover = FailoverEngine(meter=Metrics().failover)
    async with AsyncExitStack() as stack:
        for number, play in enumerate(plays):
            stage = await stack.enter_async_context(staged(play, **options))
            engine = await stack.enter_async_context(connected(stage.url))
            failover.add(f"main/{number}", engine)
        failover.startup()
        while len(failover.replicas.ready) < len(plays):
            await asyncio.sleep(0.01)
        try:
            yield failover
        finally:
            await failover.close()


async def all_of(failover: FailoverEngine) -> str:
    return text_of([chunk async for chunk in failover.generate(ask())])


async def test_a_broken_stream_goes_on_at_another_endpoint() -> None:
    async with together(BROKEN, continuing) as failover:
        assert [await all_of(failover) for _ in range(3)] == ["abc"] * 3


@pytest.mark.parametrize("play", [refusing(500), refusing(401), refusing(503)])
async def test_an_endpoint_that_refuses_is_gone_around(play: Play) -> None:
    async with together(play, continuing) as failover:
        assert await all_of(failover) == "abc"


async def test_when_all_are_busy_clients_are_told_when_to_come_back() -> None:
    busy = refusing(429, **{"retry-after": "9"})
    async with together(busy, busy) as failover:
        with pytest.raises(Overloaded) as refusal:
            await all_of(failover)
    assert refusal.value.delay_s == 9.0


async def test_when_none_is_there_clients_are_told_to_come_back() -> None:
    async with together(refusing(503), refusing(503)) as failover:
        with pytest.raises(EngineStarting):
            await all_of(failover)


async def test_a_broken_text_is_an_error_and_never_a_short_answer() -> None:
    play = sending(said("The capital"), then=breaking)
    async with together(play, play, probe=text_probe) as failover:
        seen = []
        with pytest.raises(EngineFailed) as refusal:
            async for chunk in failover.generate(ask(max_tokens=50)):
                seen.append(chunk)
    assert text_of(seen) == "The capital"
    assert "no endpoint left can continue" in refusal.value.message
