"""The fake engine keeps its promises: others are tested against it."""

import asyncio
from contextlib import aclosing
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from steelyard.backends.fake import FakeEngine, FakeEngineConfig, Fault, FaultKind
from steelyard.contract import Engine, GenerateRequest, SamplingParams, TokenChunk, VirtualClock
from steelyard.contract.errors import (
    Cancelled,
    ContextTooLong,
    EngineDraining,
    EngineFailed,
    EngineLost,
    InvalidRequest,
    Overloaded,
    SteelyardError,
)


def request(
    name: str = "r", prompt: tuple[int, ...] = (1, 2, 3), max_tokens: int = 8, **sampling: object
) -> GenerateRequest:
    params = SamplingParams(max_tokens=max_tokens, **{"temperature": 0.0} | sampling)
    return GenerateRequest(request_id=name, prompt_ids=prompt, sampling=params)


async def collect(engine: FakeEngine, asked: GenerateRequest) -> list[TokenChunk]:
    return [chunk async for chunk in engine.generate(asked)]


def ids(chunks: list[TokenChunk]) -> tuple[int, ...]:
    return tuple(i for chunk in chunks for i in chunk.token_ids)


async def settle() -> None:
    for _ in range(20):
        await asyncio.sleep(0)


def test_it_is_an_engine() -> None:
    engine: Engine = FakeEngine()
    assert engine.info.model == "fake"


async def test_chunks_are_consecutive_and_the_last_one_closes_the_account() -> None:
    engine = FakeEngine(FakeEngineConfig(tokens_per_chunk=3))
    chunks = await collect(engine, request(max_tokens=8))
    assert [c.start for c in chunks] == [0, 3, 6]
    assert [c.finish_reason for c in chunks] == [None, None, "length"]
    assert chunks[-1].usage.prompt_tokens == 3
    assert chunks[-1].usage.completion_tokens == 8
    status = await engine.status()
    assert (status.running, status.finished_total, status.produced_tokens_total) == (0, 1, 8)


@given(st.lists(st.integers(0, 255), min_size=1, max_size=20), st.integers(1, 20), st.data())
def test_a_continued_stream_draws_the_tokens_it_would_have_drawn(
    prompt: list[int], length: int, data: st.DataObject
) -> None:
    cut = data.draw(st.integers(0, length - 1))
    whole = request(prompt=tuple(prompt), max_tokens=length)

    async def play() -> None:
        expected = FakeEngine().expected_ids(whole)
        assert ids(await collect(FakeEngine(), whole)) == expected
        rest = GenerateRequest(
            request_id="again",
            prompt_ids=whole.prompt_ids,
            sampling=whole.sampling,
            emitted_ids=expected[:cut],
        )
        chunks = await collect(FakeEngine(), rest)
        assert chunks[0].start == cut
        assert expected[:cut] + ids(chunks) == expected
        assert chunks[-1].usage.completion_tokens == length

    asyncio.run(play())


async def test_seeds_matter_only_when_sampling() -> None:
    engine = FakeEngine()
    greedy = [engine.expected_ids(request(seed=seed)) for seed in (1, 2)]
    sampled = [engine.expected_ids(request(seed=seed, temperature=1.0)) for seed in (1, 2)]
    assert greedy[0] == greedy[1]
    assert sampled[0] != sampled[1]
    assert engine.expected_ids(request(prompt=(9,))) != greedy[0]


async def test_the_natural_end_and_stop_tokens_end_a_stream() -> None:
    engine = FakeEngine(FakeEngineConfig(output_tokens=4, end_token_ids=(255,)))
    chunks = await collect(engine, request())
    assert ids(chunks)[-1] == 255
    assert (chunks[-1].finish_reason, chunks[-1].stop_token_id) == ("stop", 255)
    assert len(ids(await collect(engine, request(ignore_eos=True)))) == 8
    assert len(ids(await collect(engine, request(min_tokens=6)))) == 7
    third = ids(chunks)[2]
    stopped = await collect(engine, request(stop_token_ids=(third,)))
    assert stopped[-1].stop_token_id == third


async def test_latencies_follow_the_clock() -> None:
    clock = VirtualClock()
    config = FakeEngineConfig(ttft_s=1.0, itl_s=0.25, prefill_s_per_token=0.1)
    engine = FakeEngine(config, clock)
    times: list[float] = []

    async def run() -> None:
        async for _ in engine.generate(request(max_tokens=3)):
            times.append(clock.now())

    task = asyncio.ensure_future(run())
    await clock.advance(5.0)
    await task
    assert times == pytest.approx([1.3, 1.55, 1.8])


async def test_jitter_is_seeded() -> None:
    async def arrivals(seed: int) -> list[float]:
        clock = VirtualClock()
        engine = FakeEngine(FakeEngineConfig(itl_s=0.1, jitter=0.5, seed=seed), clock)
        times: list[float] = []

        async def run() -> None:
            async for _ in engine.generate(request(max_tokens=6)):
                times.append(clock.now())

        task = asyncio.ensure_future(run())
        await clock.advance(5.0)
        await task
        return times

    first = await arrivals(1)
    assert await arrivals(1) == first
    assert await arrivals(2) != first
    assert all(0.05 <= b - a <= 0.15 for a, b in pairwise(first))


async def test_the_queue_is_bounded_and_first_come_first_served() -> None:
    clock = VirtualClock()
    engine = FakeEngine(FakeEngineConfig(max_running=1, max_waiting=1, itl_s=0.1), clock)
    tasks = []
    for name in ("a", "b", "c"):
        tasks.append(asyncio.ensure_future(collect(engine, request(name))))
        await settle()
    status = await engine.status()
    assert (status.running, status.waiting) == (1, 1)
    with pytest.raises(Overloaded):
        await tasks[2]
    await clock.advance(10.0)
    assert ids(await tasks[0]) == ids(await tasks[1])


async def test_closing_the_iterator_aborts() -> None:
    engine = FakeEngine()
    async with aclosing(engine.generate(request("left"))) as chunks:
        await anext(chunks)
    assert engine.recent_aborts == ("left",)
    assert (await engine.status()).running == 0


async def test_abort_frees_the_slot_at_once_and_ends_the_stream() -> None:
    clock = VirtualClock()
    engine = FakeEngine(FakeEngineConfig(itl_s=1.0), clock)
    task = asyncio.ensure_future(collect(engine, request("x")))
    await clock.advance(1.5)
    await engine.abort("x")
    await engine.abort("unknown")
    assert (await engine.status()).running == 0
    await clock.advance(1.0)
    with pytest.raises(Cancelled):
        await task
    assert engine.recent_aborts == ("x",)


async def test_abort_reaches_a_request_that_waits() -> None:
    clock = VirtualClock()
    engine = FakeEngine(FakeEngineConfig(max_running=1, itl_s=1.0), clock)
    running = asyncio.ensure_future(collect(engine, request("a")))
    await settle()
    waiting = asyncio.ensure_future(collect(engine, request("b")))
    await settle()
    await engine.abort("b")
    with pytest.raises(Cancelled):
        await waiting
    await clock.advance(20.0)
    assert len(ids(await running)) == 8


@pytest.mark.parametrize(
    ("kind", "error"),
    [
        (FaultKind.FAIL, EngineFailed),
        (FaultKind.DROP, EngineLost),
        (FaultKind.DIE, EngineLost),
        (FaultKind.OVERLOADED, Overloaded),
    ],
)
async def test_a_fault_comes_after_exactly_as_many_tokens(
    kind: FaultKind, error: type[SteelyardError]
) -> None:
    engine = FakeEngine()
    engine.inject(Fault(kind, after_tokens=3))
    got: list[int] = []
    with pytest.raises(error):
        async for chunk in engine.generate(request()):
            got += chunk.token_ids
    expected = 0 if kind is FaultKind.OVERLOADED else 3
    assert tuple(got) == engine.expected_ids(request())[:expected]


async def test_a_fault_hits_as_many_requests_as_planned() -> None:
    engine = FakeEngine()
    engine.inject(Fault(FaultKind.FAIL, requests=2))
    engine.inject(Fault(FaultKind.OVERLOADED))
    outcomes = []
    for _ in range(4):
        try:
            outcomes.append(len(ids(await collect(engine, request()))))
        except SteelyardError as error:
            outcomes.append(error.code)
    assert outcomes == ["engine_failed", "engine_failed", "overloaded", 8]


async def test_a_stalled_request_waits_until_it_is_aborted() -> None:
    engine = FakeEngine()
    engine.inject(Fault(FaultKind.STALL, after_tokens=2))
    task = asyncio.ensure_future(collect(engine, request("s")))
    await settle()
    assert not task.done()
    await engine.abort("s")
    with pytest.raises(Cancelled):
        await task


async def test_garbage_is_recognisable_by_its_start() -> None:
    engine = FakeEngine()
    engine.inject(Fault(FaultKind.GARBAGE, after_tokens=2))
    starts = [chunk.start for chunk in await collect(engine, request())]
    assert starts[:2] == [0, 1]
    assert starts[2] != 2


async def test_a_lost_engine_takes_everybody_with_it() -> None:
    clock = VirtualClock()
    engine = FakeEngine(FakeEngineConfig(itl_s=1.0), clock)
    tasks = [asyncio.ensure_future(collect(engine, request(n))) for n in "ab"]
    await clock.advance(1.5)
    await engine.close()
    await clock.advance(1.0)
    for task in tasks:
        with pytest.raises(EngineLost):
            await task
    with pytest.raises(EngineLost):
        await collect(engine, request())
    with pytest.raises(EngineLost):
        _ = engine.info
    assert (await engine.status()).state == "lost"


async def test_draining_waits_for_the_running_and_refuses_the_rest() -> None:
    clock = VirtualClock()
    engine = FakeEngine(FakeEngineConfig(itl_s=1.0), clock)
    running = asyncio.ensure_future(collect(engine, request("a")))
    await settle()
    drained = asyncio.ensure_future(engine.drain())
    await settle()
    with pytest.raises(EngineDraining):
        await collect(engine, request("b"))
    assert not drained.done()
    await clock.advance(10.0)
    await drained
    assert len(ids(await running)) == 8


async def test_prefixes_are_remembered_per_salt_and_forgotten_in_order() -> None:
    engine = FakeEngine(FakeEngineConfig(block_tokens=4, prefix_blocks=4))
    prompt = tuple(range(17))

    async def cached(salt: str = "", of: tuple[int, ...] = prompt) -> int:
        asked = GenerateRequest(
            request_id="r", prompt_ids=of, sampling=SamplingParams(max_tokens=1), cache_salt=salt
        )
        return (await collect(engine, asked))[-1].usage.cached_tokens

    assert await cached() == 0
    assert await cached() == 16
    assert await cached(of=(*prompt[:9], 99, 99, 99, 99)) == 8
    assert await cached(salt="other") == 0
    assert await cached() == 0, "the other prompts took the place"
    await engine.warm([(5,) * 9])
    assert await cached(of=(5,) * 9) == 8


async def test_logprobs_come_when_asked_for() -> None:
    engine = FakeEngine()
    chunks = await collect(engine, request(logprobs=2))
    assert all(len(c.logprobs) == len(c.token_ids) for c in chunks)
    first = chunks[0].logprobs[0]
    assert first.top_ids[0] == chunks[0].token_ids[0]
    assert first.logprob == first.top_logprobs[0] > first.top_logprobs[1]
    assert (await collect(engine, request()))[0].logprobs is None


@pytest.mark.parametrize(
    ("asked", "error"),
    [
        (request(prompt=()), InvalidRequest),
        (request(prompt=(1, 999)), InvalidRequest),
        (request(prompt=(-1,)), InvalidRequest),
        (request(max_tokens=10_000), ContextTooLong),
    ],
)
async def test_impossible_requests_are_refused(
    asked: GenerateRequest, error: type[SteelyardError]
) -> None:
    engine = FakeEngine()
    with pytest.raises(error):
        await collect(engine, asked)
    assert (await engine.status()).running == 0
