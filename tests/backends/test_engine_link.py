"""`EmbeddedEngine` against engines that break the protocol, and how streams hand over chunks."""

import asyncio
import struct
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from steelyard.backends._engine_link import TokenStream
from steelyard.backends.embedded import EmbeddedEngine
from steelyard.contract import EngineInfo, EngineStatus, TokenChunk
from steelyard.contract.codec import command_decoder, encode_frame
from steelyard.contract.errors import EngineFailed, EngineLost, ProtocolError
from steelyard.contract.wire import (
    PROTOCOL_VERSION,
    Abort,
    Chunks,
    Command,
    Event,
    Hello,
    StatusReply,
    Submit,
)
from tests.engine_processes import EngineFolder, make_request

INFO = EngineInfo(model="m", context_tokens=100, vocab_size=256, end_token_ids=(), epoch="e")


class BadEngine:
    """A server that answers as a test tells it to."""

    def __init__(self) -> None:
        self.commands: asyncio.Queue[Command] = asyncio.Queue()
        self.writer: asyncio.StreamWriter | None = None
        self.hello: bytes = encode_frame(Hello(PROTOCOL_VERSION, INFO))

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.writer = writer
        writer.write(self.hello)
        decoder = command_decoder()
        while data := await reader.read(65536):
            for command in decoder.feed(data):
                self.commands.put_nowait(command)
        writer.close()

    def say(self, *events: Event | bytes) -> None:
        assert self.writer is not None
        for event in events:
            self.writer.write(event if isinstance(event, bytes) else encode_frame(event))


@pytest.fixture
async def bad_engine(engine_folder: EngineFolder) -> AsyncIterator[BadEngine]:
    bad = BadEngine()
    server = await asyncio.start_unix_server(bad.serve, engine_folder.socket)
    yield bad
    server.close()
    if bad.writer is not None:
        bad.writer.close()


@pytest.fixture
async def engine(
    engine_folder: EngineFolder, bad_engine: BadEngine
) -> AsyncIterator[EmbeddedEngine]:
    connected = EmbeddedEngine(engine_folder.address)
    await connected.connect(timeout_s=5)
    yield connected
    await connected.close()


@asynccontextmanager
async def streaming(
    engine: EmbeddedEngine, bad: BadEngine
) -> AsyncIterator[Callable[[], Awaitable[TokenChunk]]]:
    """A stream of request `r`, submitted and with its first token delivered."""
    stream = engine.generate(make_request())
    first = asyncio.ensure_future(anext(stream))
    assert isinstance(await bad.commands.get(), Submit)
    bad.say(Chunks((TokenChunk("r", 0, (1,)),)))
    assert (await first).token_ids == (1,)
    yield lambda: anext(stream)


@pytest.mark.parametrize(
    "chunk",
    [TokenChunk("r", 2, (3,)), TokenChunk("r", 0, (1,)), TokenChunk("r", 1, tuple(range(8)))],
    ids=["lost", "repeated", "too-many"],
)
async def test_a_stream_with_a_gap_fails_and_is_aborted(
    engine: EmbeddedEngine, bad_engine: BadEngine, chunk: TokenChunk
) -> None:
    async with streaming(engine, bad_engine) as following:
        bad_engine.say(Chunks((chunk,)))
        with pytest.raises(EngineFailed, match="lost or repeated"):
            await following()
        assert await bad_engine.commands.get() == Abort("r")


async def test_tokens_that_came_before_a_gap_are_delivered(
    engine: EmbeddedEngine, bad_engine: BadEngine
) -> None:
    async with streaming(engine, bad_engine) as following:
        bad_engine.say(Chunks((TokenChunk("r", 1, (2,)), TokenChunk("r", 3, (4,)))))
        assert (await following()).token_ids == (2,)
        with pytest.raises(EngineFailed):
            await following()


@pytest.mark.parametrize(
    "garbage",
    [b"\xff" * 64, struct.pack(">I", 1) + b"\xc1", encode_frame(Abort("an event it is not"))],
    ids=["too-long", "no-msgpack", "a-command"],
)
async def test_an_engine_that_sends_garbage_is_lost(
    engine: EmbeddedEngine, bad_engine: BadEngine, garbage: bytes
) -> None:
    async with streaming(engine, bad_engine) as following:
        bad_engine.say(garbage)
        with pytest.raises(EngineLost, match="garbage"):
            await following()
    with pytest.raises(EngineLost):
        await engine.status()


async def test_an_engine_that_speaks_another_version_is_refused(
    engine_folder: EngineFolder, bad_engine: BadEngine
) -> None:
    bad_engine.hello = encode_frame(Hello(PROTOCOL_VERSION + 1, INFO))
    with pytest.raises(ProtocolError, match=f"version {PROTOCOL_VERSION + 1}"):
        await EmbeddedEngine(engine_folder.address).connect(timeout_s=5)


async def test_connecting_goes_on_while_a_dying_predecessor_accepts_and_says_nothing(
    engine_folder: EngineFolder,
) -> None:
    attempts = 0

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal attempts
        attempts += 1
        if attempts == 3:
            writer.write(encode_frame(Hello(PROTOCOL_VERSION, INFO)))
            await reader.read()
        writer.close()

    server = await asyncio.start_unix_server(serve, engine_folder.socket)
    engine = EmbeddedEngine(engine_folder.address)
    assert await engine.connect(timeout_s=5) == INFO
    assert attempts == 3
    await engine.close()
    server.close()


async def test_answers_nobody_asked_for_are_ignored(
    engine: EmbeddedEngine, bad_engine: BadEngine
) -> None:
    async with streaming(engine, bad_engine) as following:
        bad_engine.say(
            StatusReply(99, EngineStatus(state="ready")),
            Chunks((TokenChunk("unknown", 0, (1,)),)),
            Hello(PROTOCOL_VERSION, INFO),
            Chunks((TokenChunk("r", 1, (2,)),)),
        )
        assert (await following()).token_ids == (2,)


async def test_an_aborted_requests_late_tokens_are_dropped(
    engine: EmbeddedEngine, bad_engine: BadEngine
) -> None:
    stream = engine.generate(make_request())
    first = asyncio.ensure_future(anext(stream))
    await bad_engine.commands.get()
    bad_engine.say(Chunks((TokenChunk("r", 0, (1,)),)))
    await first
    await stream.aclose()
    again = asyncio.ensure_future(anext(engine.generate(make_request("other"))))
    assert await bad_engine.commands.get() == Abort("r")
    bad_engine.say(Chunks((TokenChunk("r", 1, (2,)), TokenChunk("other", 0, (9,)))))
    assert (await again).token_ids == (9,)


async def test_submitting_waits_for_an_engine_that_does_not_read(
    engine_folder: EngineFolder,
) -> None:
    """What is not yet sent stays with its callers instead of piling up in the connection."""
    may_read = asyncio.Event()
    received = 0

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal received
        writer.write(encode_frame(Hello(PROTOCOL_VERSION, INFO)))
        await may_read.wait()
        decoder = command_decoder()
        while data := await reader.read(1 << 20):
            received += len(decoder.feed(data))
        writer.close()

    server = await asyncio.start_unix_server(serve, engine_folder.socket)
    engine = EmbeddedEngine(engine_folder.address)
    await engine.connect(timeout_s=5)
    prompt = tuple(range(250)) * 400
    consumers = [
        asyncio.ensure_future(anext(engine.generate(make_request(f"r{n}", prompt=prompt))))
        for n in range(100)
    ]
    await asyncio.sleep(0.1)
    link = engine._link
    assert link is not None and link._transport is not None
    assert link._transport.get_write_buffer_size() < 1_000_000
    may_read.set()
    while received < 100:
        await asyncio.sleep(0.01)
    await engine.close()
    for ended in await asyncio.gather(*consumers, return_exceptions=True):
        assert isinstance(ended, EngineLost)
    server.close()


@given(st.lists(st.integers(1, 5), min_size=1, max_size=30), st.randoms())
def test_chunks_are_taken_in_the_order_they_were_pushed(sizes: list[int], random: Random) -> None:
    stream = TokenStream(make_request(max_tokens=sum(sizes)))
    taken: list[TokenChunk] = []
    start = 0
    for size in sizes:
        assert stream.push(TokenChunk("r", start, (0,) * size))
        start += size
        if random.random() < 0.5 and (chunk := stream.take()) is not None:
            taken.append(chunk)
    while (chunk := stream.take()) is not None:
        taken.append(chunk)
    assert [len(chunk.token_ids) for chunk in taken] == sizes
    assert [chunk.start for chunk in taken] == [sum(sizes[:n]) for n in range(len(sizes))]
    assert not stream.push(TokenChunk("r", start, (0,)))
