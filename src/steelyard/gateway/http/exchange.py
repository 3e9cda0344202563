"""One request and its answer on a connection.

Reads the body under the connection's limits, sends an `Answer` or opens an `EventStream`, once.
What the request means is decided by the handler that holds the exchange.
"""

import asyncio
from collections.abc import AsyncIterator, Mapping
from typing import BinaryIO
from urllib.parse import unquote

from aiohttp import HttpVersion11, web

from steelyard.gateway.caller import NOBODY
from steelyard.gateway.config import HttpLimits
from steelyard.gateway.errors import Refusal
from steelyard.gateway.http.answers import Answer, Headers, render_head
from steelyard.gateway.http.body import read_body
from steelyard.gateway.http.connection import Connection
from steelyard.gateway.http.event_stream import EventStream
from steelyard.gateway.http.upload import Form, read_form

__all__ = ["Exchange"]


class Exchange:
    """Valid from the end of the request's header to the end of its answer."""

    __slots__ = (
        "_connection",
        "_has_sent",
        "_is_http_10",
        "_limits",
        "_request",
        "_stream",
        "answer_headers",
        "caller",
        "close",
        "interrupted_by",
        "method",
        "path",
        "request_id",
        "route",
        "status",
        "task",
    )

    def __init__(
        self, request: web.BaseRequest, connection: Connection, limits: HttpLimits, *, close: bool
    ) -> None:
        self._request = request
        self._connection = connection
        self._limits = limits
        self._is_http_10 = request.version < HttpVersion11
        self.close = close or not request.keep_alive
        """The connection ends with this answer. May become true at any time."""
        self._stream: EventStream | None = None
        self._has_sent = False
        self.method = request.method
        self.path = unquote(request.rel_url.raw_path)
        """Percent-decoded, without the query."""
        self.request_id = ""
        self.caller = NOBODY
        """Who asks, once that is known."""
        self.route = "unknown"
        """Template of the route that matched, for metrics."""
        self.status = 0
        """Of the answer; 0 when there was none."""
        self.answer_headers: Headers = ()
        """Fields that every answer of this exchange carries."""
        self.interrupted_by: Refusal | None = None
        """Why the server cancelled this exchange; None when it did not."""
        self.task: asyncio.Task[None] | None = asyncio.current_task()

    @property
    def query(self) -> Mapping[str, str]:
        """What follows the path; of equal names the first."""
        return self._request.rel_url.query

    @property
    def has_begun(self) -> bool:
        """True once the status of the answer is on its way."""
        return self._has_sent or (self._stream is not None and self._stream.has_begun)

    def name(self, request_id: str) -> None:
        """Give the exchange the id that joins answer, log and metrics."""
        self.request_id = request_id
        self.answer_headers += (("x-request-id", request_id),)

    def header(self, name: str) -> str | None:
        """The first field called `name` (any case); None when there is none."""
        return self._request.headers.get(name)

    def headers(self, name: str) -> list[str]:
        """All fields called `name` (any case)."""
        return self._request.headers.getall(name, [])

    async def read_body(self) -> bytes:
        """The whole body, which must be JSON by its content type. Raises `Refusal`."""
        return await read_body(self._request, self._connection, self._limits)

    async def read_form(self, content: BinaryIO, max_bytes: int) -> Form:
        """A form whose file goes to `content`. Raises `Refusal`."""
        return await read_form(self._request, self._connection, self._limits, content, max_bytes)

    async def send(self, answer: Answer) -> None:
        """Send the complete answer; waits while the client is slow to take it."""
        assert not self.has_begun, "an exchange has one answer"
        self._has_sent = True
        self.status = answer.status
        self.close = self.close or answer.close
        head = render_head(
            answer.status,
            answer.content_type if answer.body else "",
            (*self.answer_headers, *answer.headers),
            length=None if answer.status == 204 else len(answer.body),
            close=self.close,
            is_http_10=self._is_http_10,
        )
        self._connection.write(head if self.method == "HEAD" else head + answer.body)
        await self._connection.drain()

    async def send_parts(self, content_type: str, length: int, parts: AsyncIterator[bytes]) -> None:
        """Send a body of `length` bytes piece by piece, as the client takes it."""
        assert not self.has_begun, "an exchange has one answer"
        self._has_sent = True
        self.status = 200
        head = render_head(
            200,
            content_type,
            self.answer_headers,
            length=length,
            close=self.close,
            is_http_10=self._is_http_10,
        )
        self._connection.write(head)
        if self.method != "HEAD":
            self.close, closes = True, self.close  # half a body must not look like a whole one
            async for part in parts:
                self._connection.write(part)
                await self._connection.drain()
            self.close = closes

    async def refuse(self, refusal: Refusal) -> None:
        """Send an error: as an answer, or as the last event of a stream that has begun.

        Such a stream ends without `[DONE]`, so that nobody takes it for a complete one.
        """
        if self._stream is not None and self._stream.has_begun:
            self._stream.end(b"data: %b\n\n" % refusal.body)
        elif not self._has_sent:
            await self.send(
                Answer(refusal.body, refusal.status, headers=refusal.headers, close=refusal.close)
            )

    def open_stream(self) -> EventStream:
        """An event stream as the answer. Nothing is sent before its first `write`."""
        assert not self.has_begun and self._stream is None, "an exchange has one answer"
        self.close = self.close or self._is_http_10
        self.status = 200
        head = render_head(
            200,
            "text/event-stream; charset=utf-8",
            (*self.answer_headers, ("cache-control", "no-cache"), ("x-accel-buffering", "no")),
            length=None,
            is_chunked=not self._is_http_10,
            close=self.close,
            is_http_10=self._is_http_10,
        )
        self._stream = EventStream(self._connection, head, is_chunked=not self._is_http_10)
        return self._stream

    def interrupt(self, refusal: Refusal) -> None:
        """End the exchange from outside; its handler is cancelled where it waits."""
        self.interrupted_by = refusal
        if self.task is not None:
            self.task.cancel()
