"""One connection to an engine process, from the first byte to its loss.

Frames in, streams out: one frame carries the tokens of all requests for one step, and each token
is handed straight to whoever waits for it. Connecting, deadlines and what to do after a loss
belong to `backends.embedded`.
"""

import asyncio
from collections import deque
from collections.abc import Callable
from typing import cast

from steelyard.contract import EngineInfo, EngineStatus, TokenChunk
from steelyard.contract.codec import encode_frame, event_decoder
from steelyard.contract.errors import (
    Cancelled,
    EngineFailed,
    EngineLost,
    InvalidRequest,
    ProtocolError,
    SteelyardError,
    from_info,
)
from steelyard.contract.requests import GenerateRequest
from steelyard.contract.wire import (
    PROTOCOL_VERSION,
    Abort,
    Chunks,
    Command,
    Done,
    Event,
    Failed,
    Hello,
    Progress,
    StatusReply,
    Submit,
)

__all__ = ["EngineLink", "TokenStream"]

Answer = EngineStatus | None
"""What a query is answered with: `StatusQuery` with a status, the others with nothing."""


class TokenStream:
    """Chunks of one request, between the connection and their one consumer.

    Bounded: the engine cannot make it hold more than the `max_tokens` the request allows.
    """

    __slots__ = ("_chunks", "_end", "_error", "_next_start", "_waiter", "is_over", "request_id")

    def __init__(self, request: GenerateRequest) -> None:
        self.request_id = request.request_id
        self.is_over = False
        """True once the engine has said its last word on this request."""
        self._next_start = len(request.emitted_ids)
        self._end = request.sampling.max_tokens
        self._chunks: deque[TokenChunk] = deque()
        self._error: SteelyardError | None = None
        self._waiter: asyncio.Future[TokenChunk] | None = None

    def push(self, chunk: TokenChunk) -> bool:
        """Take the next chunk; False when tokens are missing, repeated or too many."""
        end = chunk.start + len(chunk.token_ids)
        if chunk.start != self._next_start or end > self._end:
            return False
        self._next_start = end
        if chunk.finish_reason is not None:
            self.is_over = True
        waiter = self._waiter
        if waiter is not None and not waiter.done():
            waiter.set_result(chunk)
        else:
            self._chunks.append(chunk)
        return True

    def fail(self, error: SteelyardError) -> None:
        """End with `error`, after the chunks that are already here."""
        self.is_over = True
        waiter = self._waiter
        if waiter is not None and not waiter.done():
            waiter.set_exception(error)
        else:
            self._error = error

    def take(self) -> TokenChunk | None:
        """A chunk that is already here; None when there is none. Raises what ended the stream."""
        if self._chunks:
            return self._chunks.popleft()
        if self._error is not None:
            raise self._error
        return None

    def wait(self) -> "asyncio.Future[TokenChunk]":
        """The next chunk, once it comes; only valid after `take` returned None."""
        self._waiter = asyncio.get_running_loop().create_future()
        return self._waiter


class EngineLink(asyncio.Protocol):
    """The client's half of `contract.wire` on one connection."""

    def __init__(self, on_progress: Callable[[Progress], None]) -> None:
        loop = asyncio.get_running_loop()
        self.hello: asyncio.Future[EngineInfo] = loop.create_future()
        self.lost: asyncio.Future[EngineLost] = loop.create_future()
        """Done, with the reason, when the connection is gone."""
        self.has_spoken = False
        """True once anything was received; a live engine speaks as soon as it is connected to."""
        self._on_progress = on_progress
        self._decoder = event_decoder()
        self._transport: asyncio.Transport | None = None
        self._streams: dict[str, TokenStream] = {}
        self._queries: dict[int, asyncio.Future[Answer]] = {}
        self._last_query = 0
        self._writable: asyncio.Future[None] | None = None
        self._reason = "the engine closed the connection"

    async def open_stream(self, request: GenerateRequest) -> TokenStream:
        """Submit a request. Waits while the engine does not read what it was sent before."""
        if request.request_id in self._streams:
            raise InvalidRequest("this request id is in use", param="request_id")
        stream = TokenStream(request)
        self._streams[request.request_id] = stream
        try:
            while self._writable is not None:
                await asyncio.shield(self._writable)
            if not stream.is_over:
                self.send(Submit(request))
        except BaseException:
            del self._streams[request.request_id]
            raise
        return stream

    def close_stream(self, stream: TokenStream) -> None:
        """Forget a stream; one that is not over is aborted in the engine."""
        if self._streams.get(stream.request_id) is stream:
            del self._streams[stream.request_id]
        if not stream.is_over and not self.lost.done():
            self.send(Abort(stream.request_id))

    def abort(self, request_id: str) -> None:
        """Stop a request; its consumer gets `Cancelled`. Unknown ids are ignored."""
        stream = self._streams.get(request_id)
        if stream is not None and not stream.is_over:
            self.send(Abort(request_id))
            stream.fail(Cancelled("the request was aborted"))

    async def ask(self, command: Callable[[int], Command]) -> Answer:
        """Send the command made from a fresh query id; return what it is answered with."""
        self._last_query += 1
        query_id = self._last_query
        reply: asyncio.Future[Answer] = asyncio.get_running_loop().create_future()
        self._queries[query_id] = reply
        try:
            self.send(command(query_id))
            return await reply
        finally:
            del self._queries[query_id]

    def send(self, command: Command) -> None:
        """Raises `EngineLost` when there is nobody to send to any more."""
        if self.lost.done():
            raise EngineLost(self._reason)
        cast(asyncio.Transport, self._transport).write(encode_frame(command))

    def close(self, reason: str) -> None:
        """Break the connection; everything that waits on it fails at once."""
        if self._transport is not None:
            self._transport.abort()
        self._lose(reason)

    # The event loop calls the following.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)

    def data_received(self, data: bytes) -> None:
        self.has_spoken = True
        try:
            events = self._decoder.feed(data)
        except ProtocolError as error:
            self.close(f"the engine sent garbage: {error.message}")
            return
        for event in events:
            if type(event) is Chunks:
                self._take_chunks(event.chunks)
            else:
                self._take(event)

    def pause_writing(self) -> None:
        self._writable = asyncio.get_running_loop().create_future()

    def resume_writing(self) -> None:
        writable, self._writable = self._writable, None
        if writable is not None:
            writable.set_result(None)

    def connection_lost(self, error: Exception | None) -> None:
        self._lose(f"the connection to the engine broke: {error}" if error else self._reason)

    def _take_chunks(self, chunks: tuple[TokenChunk, ...]) -> None:
        streams = self._streams
        for chunk in chunks:
            stream = streams.get(chunk.request_id)
            # None or over: given up here while the chunk was on its way.
            if stream is not None and not stream.is_over and not stream.push(chunk):
                self.send(Abort(chunk.request_id))
                stream.fail(EngineFailed("the engine lost or repeated a token of this stream"))

    def _take(self, event: Event) -> None:
        match event:
            case Hello(protocol, info):
                self._greet(protocol, info)
            case Progress():
                self._on_progress(event)
            case Failed(request_id, error):
                if (stream := self._streams.get(request_id)) is not None and not stream.is_over:
                    stream.fail(from_info(error))
            case StatusReply(query_id, status):
                self._settle(query_id, status)
            case Done(query_id, None):
                self._settle(query_id, None)
            case Done(query_id, error) if error is not None:
                self._settle(query_id, from_info(error))
            case _:
                pass

    def _greet(self, protocol: int, info: EngineInfo) -> None:
        if self.hello.done():
            return
        if protocol == PROTOCOL_VERSION:
            self.hello.set_result(info)
            return
        self.hello.set_exception(
            ProtocolError(f"the engine speaks wire version {protocol}, not {PROTOCOL_VERSION}")
        )

    def _settle(self, query_id: int, answer: Answer | SteelyardError) -> None:
        reply = self._queries.get(query_id)
        if reply is None or reply.done():
            return
        if isinstance(answer, SteelyardError):
            reply.set_exception(answer)
        else:
            reply.set_result(answer)

    def _lose(self, reason: str) -> None:
        if self.lost.done():
            return
        self._reason = reason
        self.lost.set_result(EngineLost(reason))
        if not self.hello.done():
            self.hello.set_exception(EngineLost(reason))
        for stream in self._streams.values():
            if not stream.is_over:
                stream.fail(EngineLost(reason))
        for reply in self._queries.values():
            if not reply.done():
                reply.set_exception(EngineLost(reason))
        self.resume_writing()
