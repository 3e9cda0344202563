"""`EmbeddedEngine` on real engine processes: streams, losses, limits."""

import asyncio
import signal
import socket
import subprocess
import time
from contextlib import aclosing

import pytest
import uvloop

from steelyard.backends.embedded import EmbeddedEngine
from steelyard.contract import (
    EngineStatus,
    GenerateRequest,
    SamplingParams,
    TokenChunk,
    VirtualClock,
)
from steelyard.contract.codec import encode_frame
from steelyard.contract.errors import (
    Cancelled,
    ContextTooLong,
    EngineDraining,
    EngineLost,
    EngineStalled,
    InvalidRequest,
)
from steelyard.contract.wire import Submit
from steelyard.engine.fake_runner import FakeModel, fake_token
from tests.engine_processes import EngineFolder, Start, make_request, wait_until_async


async def connected(folder: EngineFolder, **options: float) -> EmbeddedEngine:
    engine = EmbeddedEngine(folder.address, **options)
    await engine.connect(timeout_s=10)
    return engine


async def collect(engine: EmbeddedEngine, request: GenerateRequest) -> list[TokenChunk]:
    return [chunk async for chunk in engine.generate(request)]


async def drain_into(
    engine: EmbeddedEngine, request: GenerateRequest, into: list[TokenChunk]
) -> None:
    async for chunk in engine.generate(request):
        into.append(chunk)


def tokens_of(chunks: list[TokenChunk]) -> list[int]:
    return [token for chunk in chunks for token in chunk.token_ids]


def expected(request: GenerateRequest, model: FakeModel | None = None) -> list[int]:
    previous, tokens = request.prompt_ids[-1], []
    for position in range(request.sampling.max_tokens):
        previous = fake_token(model or FakeModel(), seed=0, previous=previous, position=position)
        tokens.append(previous)
    return tokens


async def status_at_rest(engine: EmbeddedEngine, *, after_step: int) -> EngineStatus:
    """The first status without requests, which must come before two more steps are over.

    One step may be under way when a client leaves, and another client's query may be read in the
    same poll just before that is noticed.
    """
    while (status := await engine.status()).running or status.waiting:
        assert status.steps_total <= after_step + 2
    return status


async def test_many_requests_share_a_connection_and_each_gets_its_own_tokens(
    engine_folder: EngineFolder, start_engine: Start
) -> None:
    start_engine(engine_folder.config())
    engine = await connected(engine_folder)
    requests = [
        make_request(f"r{n}", prompt=tuple(range(n + 1)), max_tokens=20 + n) for n in range(30)
    ]
    for request, chunks in zip(
        requests,
        await asyncio.gather(*(collect(engine, request) for request in requests)),
        strict=True,
    ):
        assert tokens_of(chunks) == expected(request)
        assert chunks[-1].finish_reason == "length"
        assert chunks[-1].usage is not None
        assert chunks[-1].usage.completion_tokens == len(expected(request))
    await engine.close()


async def test_a_continued_stream_goes_on_exactly_where_it_stopped(
    engine_folder: EngineFolder, start_engine: Start
) -> None:
    start_engine(engine_folder.config())
    engine = await connected(engine_folder)
    whole = tokens_of(await collect(engine, make_request("whole", max_tokens=20)))
    rest = await collect(engine, make_request("rest", max_tokens=20, emitted_ids=tuple(whole[:13])))
    assert tokens_of(rest) == whole[13:]
    assert rest[0].start == 13
    await engine.close()


async def test_connecting_waits_for_a_process_that_is_only_starting_and_tells_how_far_it_is(
    engine_folder: EngineFolder, start_engine: Start
) -> None:
    engine = EmbeddedEngine(engine_folder.address)
    shares: list[float] = []
    connecting = asyncio.create_task(
        engine.connect(timeout_s=10, on_progress=lambda progress: shares.append(progress.share))
    )
    await asyncio.sleep(0.1)
    with pytest.raises(EngineLost):
        _ = engine.info
    start_engine(engine_folder.config(FakeModel(load_s=0.5)))
    info = await connecting
    assert engine.info == info
    assert len(shares) >= 2 and shares == sorted(shares)
    await engine.close()


async def test_connecting_where_nobody_listens_ends_after_the_timeout(
    engine_folder: EngineFolder,
) -> None:
    clock = VirtualClock()
    engine = EmbeddedEngine(engine_folder.address, clock=clock)
    connecting = asyncio.create_task(engine.connect(timeout_s=1))
    while not connecting.done():
        await clock.advance(0.02)
    with pytest.raises(EngineStalled, match="not ready after 1 s"):
        await connecting
    assert 1 <= clock.now() < 1.1


async def test_a_process_that_dies_while_loading_is_an_engine_lost(
    engine_folder: EngineFolder, start_engine: Start
) -> None:
    process = start_engine(engine_folder.config(FakeModel(load_s=30)))
    engine = EmbeddedEngine(engine_folder.address)
    heard = asyncio.Event()
    connecting = asyncio.create_task(
        engine.connect(timeout_s=10, on_progress=lambda _progress: heard.set())
    )
    await heard.wait()
    process.kill()
    with pytest.raises(EngineLost):
        await connecting


async def test_closing_a_stream_early_frees_its_blocks_within_one_step(
    engine_folder: EngineFolder, start_engine: Start
) -> None:
    start_engine(engine_folder.config(FakeModel(step_s=0.005)))
    engine = await connected(engine_folder)
    async with aclosing(engine.generate(make_request(max_tokens=4000))) as stream:
        await anext(stream)
        assert (await engine.status()).kv_blocks_used > 0
    before = await engine.status()
    assert (before.running, before.kv_blocks_used, before.aborted_total) == (0, 0, 1)
    await engine.close()


async def test_a_cancelled_consumer_frees_its_blocks(
    engine_folder: EngineFolder, start_engine: Start
) -> None:
    start_engine(engine_folder.config(FakeModel(step_s=0.005)))
    engine = await connected(engine_folder)
    chunks: list[TokenChunk] = []
    consumer = asyncio.create_task(drain_into(engine, make_request(max_tokens=4000), chunks))
    await wait_until_async(lambda: len(chunks) > 3)
    consumer.cancel()
    with pytest.raises(asyncio.CancelledError):
        await consumer
    assert (await engine.status()).kv_blocks_used == 0
    await engine.close()


async def test_an_aborted_request_ends_its_consumer_and_frees_its_blocks(
    engine_folder: EngineFolder, start_engine: Start
) -> None:
    start_engine(engine_folder.config(FakeModel(step_s=0.005)))
    engine = await connected(engine_folder)
    chunks: list[TokenChunk] = []
    consumer = asyncio.create_task(drain_into(engine, make_request(max_tokens=4000), chunks))
    await wait_until_async(lambda: len(chunks) > 3)
    await engine.abort("r")
    await engine.abort("unknown")
    with pytest.raises(Cancelled):
        await consumer
    assert (await engine.status()).kv_blocks_used == 0
    await engine.close()


async def test_a_client_that_disconnects_frees_its_blocks_within_one_step(
    engine_folder: EngineFolder, start_engine: Start
) -> None:
    start_engine(engine_folder.config(FakeModel(step_s=0.02)))
    leaving, staying = await connected(engine_folder), await connected(engine_folder)
    chunks: list[TokenChunk] = []
    consumers = [
        asyncio.create_task(drain_into(leaving, make_request(f"r{n}", max_tokens=4000), chunks))
        for n in range(10)
    ]
    await wait_until_async(lambda: len(chunks) > 30)
    steps = (await staying.status()).steps_total
    await leaving.close()
    for ended in await asyncio.gather(*consumers, return_exceptions=True):
        assert isinstance(ended, EngineLost)
    status = await status_at_rest(staying, after_step=steps)
    assert (status.kv_blocks_used, status.aborted_total) == (0, 10)
    await staying.close()


async def test_killing_the_process_fails_its_consumers_at_once_and_a_new_one_can_be_connected_to(
    engine_folder: EngineFolder, start_engine: Start
) -> None:
    config = engine_folder.config(FakeModel(step_s=0.005))
    process = start_engine(config)
    engine = await connected(engine_folder)
    old = engine.info
    chunks: list[TokenChunk] = []
    consumers = [
        asyncio.create_task(drain_into(engine, make_request(f"r{n}", max_tokens=4000), chunks))
        for n in range(5)
    ]
    lost = asyncio.create_task(engine.wait_lost())
    await wait_until_async(lambda: len(chunks) > 10)
    process.kill()
    killed_s = time.monotonic()
    for ended in await asyncio.gather(*consumers, return_exceptions=True):
        assert isinstance(ended, EngineLost)
    assert time.monotonic() - killed_s < 0.25
    assert isinstance(await lost, EngineLost)
    with pytest.raises(EngineLost):
        await engine.status()
    with pytest.raises(EngineLost):
        await collect(engine, make_request())
    start_engine(config)
    new = await engine.connect(timeout_s=10)
    assert new.pid != old.pid
    assert new.epoch != old.epoch
    assert tokens_of(await collect(engine, make_request())) == expected(make_request())
    await engine.close()


async def test_a_stopped_process_is_stalled_and_goes_on_when_it_is_continued(
    engine_folder: EngineFolder, start_engine: Start
) -> None:
    process = start_engine(engine_folder.config(FakeModel(step_s=0.005), watchdog_s=0.3))
    engine = await connected(engine_folder, status_timeout_s=0.2)
    request = make_request(max_tokens=100)
    chunks: list[TokenChunk] = []
    consumer = asyncio.create_task(drain_into(engine, request, chunks))
    await wait_until_async(lambda: len(chunks) > 10)
    process.send_signal(signal.SIGSTOP)
    with pytest.raises(EngineStalled):
        await engine.status()
    # Longer than the watchdog allows a step to last: being stopped is not hanging.
    await asyncio.sleep(0.5)
    process.send_signal(signal.SIGCONT)
    await consumer
    assert tokens_of(chunks) == expected(request)
    assert (await engine.status()).finished_total == 1
    await engine.close()


async def test_two_clients_do_not_disturb_each_other(
    engine_folder: EngineFolder, start_engine: Start
) -> None:
    start_engine(engine_folder.config(FakeModel(step_s=0.002)))
    first, second = await connected(engine_folder), await connected(engine_folder)
    chunks: list[TokenChunk] = []
    request = make_request("same", max_tokens=200)
    consumer = asyncio.create_task(drain_into(first, request, chunks))
    await wait_until_async(lambda: len(chunks) > 10)
    with pytest.raises(InvalidRequest, match="in use"):
        await collect(second, request)
    await second.abort("same")
    other = make_request("other", prompt=(9,), max_tokens=20)
    assert tokens_of(await collect(second, other)) == expected(other)
    await second.close()
    await consumer
    assert tokens_of(chunks) == expected(request)
    await first.close()


async def test_a_request_id_serves_one_stream_at_a_time(
    engine_folder: EngineFolder, start_engine: Start
) -> None:
    start_engine(engine_folder.config(FakeModel(step_s=0.002)))
    engine = await connected(engine_folder)
    request = make_request(max_tokens=100)
    chunks: list[TokenChunk] = []
    consumer = asyncio.create_task(drain_into(engine, request, chunks))
    await wait_until_async(lambda: len(chunks) > 10)
    with pytest.raises(InvalidRequest, match="in use"):
        await collect(engine, request)
    await consumer
    assert tokens_of(chunks) == expected(request)
    assert tokens_of(await collect(engine, request)) == expected(request)
    await engine.close()


async def test_a_client_that_does_not_read_is_cut_off_and_the_others_are_served(
    engine_folder: EngineFolder, start_engine: Start
) -> None:
    # Log-probabilities make the frames large, so that the test is short.
    start_engine(engine_folder.config(FakeModel(context_tokens=100_000, kv_blocks=100_000)))
    engine = await connected(engine_folder)
    sampling = SamplingParams(max_tokens=90_000, logprobs=128, ignore_eos=True)
    with socket.socket(socket.AF_UNIX) as deaf:
        deaf.connect(str(engine_folder.socket))
        for number in range(32):
            request = GenerateRequest(
                request_id=f"deaf-{number}", prompt_ids=(1,), sampling=sampling
            )
            deaf.sendall(encode_frame(Submit(request)))
        while (await engine.status()).running < 32:
            await asyncio.sleep(0.005)
        while (status := await engine.status()).running:
            assert status.produced_tokens_total < 32 * 90_000
        assert status.aborted_total == 32
        assert status.kv_blocks_used == 0
    assert tokens_of(await collect(engine, make_request())) == expected(make_request())
    await engine.close()


@pytest.mark.parametrize(
    ("request_", "error"),
    [
        (make_request(prompt=(256,)), InvalidRequest),
        (make_request(prompt=(-1,)), InvalidRequest),
        (make_request(prompt=()), InvalidRequest),
        (make_request(max_tokens=0), InvalidRequest),
        (make_request(max_tokens=4096), ContextTooLong),
        (make_request("\0warm-1"), InvalidRequest),
        (make_request(""), InvalidRequest),
    ],
)
async def test_requests_that_cannot_work_are_refused_with_the_reason(
    engine_folder: EngineFolder,
    start_engine: Start,
    request_: GenerateRequest,
    error: type[Exception],
) -> None:
    start_engine(engine_folder.config())
    engine = await connected(engine_folder)
    with pytest.raises(error):
        await collect(engine, request_)
    assert tokens_of(await collect(engine, make_request())) == expected(make_request())
    await engine.close()


async def test_warmed_prompts_are_found_in_the_cache(
    engine_folder: EngineFolder, start_engine: Start
) -> None:
    start_engine(engine_folder.config())
    engine = await connected(engine_folder)
    prompts = [tuple([number] * 64) for number in range(20)]
    await engine.warm(prompts)
    assert (await engine.status()).running == 0
    chunks = await collect(engine, make_request(prompt=(*prompts[13], 7)))
    assert chunks[-1].usage is not None
    assert chunks[-1].usage.cached_tokens == 64
    await engine.close()


async def test_a_prompt_that_cannot_be_warmed_is_reported(
    engine_folder: EngineFolder, start_engine: Start
) -> None:
    start_engine(engine_folder.config())
    engine = await connected(engine_folder)
    with pytest.raises(ContextTooLong):
        await engine.warm([[1, 2], [3] * 5000, [4, 5]])
    with pytest.raises(InvalidRequest):
        await engine.warm([[999]])
    await engine.warm([])
    assert (await engine.status()).kv_blocks_used == 0
    await engine.close()


async def test_a_client_that_leaves_stops_its_warming(
    engine_folder: EngineFolder, start_engine: Start
) -> None:
    start_engine(engine_folder.config(FakeModel(step_s=0.05)))
    leaving, staying = await connected(engine_folder), await connected(engine_folder)
    warming = asyncio.create_task(leaving.warm([[number] * 2000 for number in range(8)]))
    while not (status := await staying.status()).running:
        await asyncio.sleep(0.01)
    await leaving.close()
    with pytest.raises(EngineLost):
        await warming
    assert (await status_at_rest(staying, after_step=status.steps_total)).kv_blocks_used == 0
    await staying.close()


async def test_drain_refuses_new_requests_and_returns_when_the_old_ones_have_ended(
    engine_folder: EngineFolder, start_engine: Start
) -> None:
    start_engine(engine_folder.config(FakeModel(step_s=0.005)))
    engine = await connected(engine_folder)
    chunks: list[TokenChunk] = []
    request = make_request(max_tokens=60)
    consumer = asyncio.create_task(drain_into(engine, request, chunks))
    await wait_until_async(lambda: len(chunks) > 3)
    draining = asyncio.create_task(engine.drain())
    while (await engine.status()).state != "draining":
        await asyncio.sleep(0.005)
    with pytest.raises(EngineDraining):
        await collect(engine, make_request("late"))
    with pytest.raises(EngineDraining):
        await engine.warm([[1]])
    assert not draining.done()
    await draining
    assert len(chunks) == 60
    await consumer
    await engine.drain()
    await engine.close()


async def test_everything_works_over_loopback_tcp(
    engine_folder: EngineFolder, start_engine: Start
) -> None:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    start_engine(engine_folder.config(listen=f"tcp:127.0.0.1:{port}"))
    engine = EmbeddedEngine(f"tcp:127.0.0.1:{port}")
    await engine.connect(timeout_s=10)
    assert tokens_of(await collect(engine, make_request())) == expected(make_request())
    await engine.close()


def test_everything_works_under_uvloop(engine_folder: EngineFolder, start_engine: Start) -> None:
    process = start_engine(engine_folder.config(FakeModel(step_s=0.002)))
    uvloop.run(_scenario(engine_folder, process))


async def _scenario(folder: EngineFolder, process: "subprocess.Popen[bytes]") -> None:
    engine = await connected(folder)
    requests = [make_request(f"r{n}", max_tokens=50) for n in range(8)]
    for chunks in await asyncio.gather(*(collect(engine, request) for request in requests)):
        assert tokens_of(chunks) == expected(requests[0])
    async with aclosing(engine.generate(make_request(max_tokens=4000))) as stream:
        await anext(stream)
    assert (await engine.status()).kv_blocks_used == 0
    chunks: list[TokenChunk] = []
    consumer = asyncio.create_task(drain_into(engine, make_request(max_tokens=4000), chunks))
    await wait_until_async(lambda: len(chunks) > 3)
    process.kill()
    with pytest.raises(EngineLost):
        await consumer
    await engine.close()
