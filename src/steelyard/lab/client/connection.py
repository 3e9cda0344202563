"""One HTTP/1.1 connection of the load generator: writes a request, stamps every read.

The time of a token is taken before anything is parsed. One request at a time; which connection a
request gets is the business of `pool`, time limits that of `driver`.
"""

import asyncio
import time
from collections.abc import Callable
from typing import cast

from steelyard.contract.errors import ProtocolError
from steelyard.lab.client.chunks import decode_chunk, error_text
from steelyard.lab.client.events import EventSplitter
from steelyard.lab.client.exchange import Exchange
from steelyard.lab.client.http_response import ResponseReader
from steelyard.lab.outcomes import Outcome

__all__ = ["Connection"]

_MAX_ERROR_BYTES = 64 * 1024
_MAX_ANSWER_BYTES = 64 * 1024 * 1024


class Connection(asyncio.Protocol):
    """Belongs to one event loop. `on_free` is called whenever a request has left it."""

    def __init__(
        self, on_free: Callable[["Connection"], None], now: Callable[[], float] = time.monotonic
    ) -> None:
        self._on_free = on_free
        self._now = now
        self._transport: asyncio.WriteTransport | None = None
        self._exchange: Exchange | None = None
        self._reader = ResponseReader()
        self._events: EventSplitter | None = None
        """None: the body is no event stream."""
        self._body: list[bytes] = []
        self._body_bytes = 0
        self.free_since_s = now()

    @property
    def is_open(self) -> bool:
        return self._transport is not None and not self._transport.is_closing()

    def send(self, exchange: Exchange, request: bytes) -> None:
        """Write a request; `exchange` gets everything that comes back, and ends in any case."""
        assert self._exchange is None, "one request at a time"
        assert self._transport is not None
        self._exchange = exchange
        self._reader = ResponseReader()
        self._events = None
        self._body = []
        self._body_bytes = 0
        exchange.cancel = self.abort
        exchange.sent_s = self._now()
        self._transport.write(request)

    def abort(self) -> None:
        """Close at once; a request that runs on it is abandoned."""
        if self._transport is not None:
            self._transport.abort()

    # Called by the event loop.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.WriteTransport, transport)  # uvloop's is none by its class

    def data_received(self, data: bytes) -> None:
        now_s = self._now()
        exchange = self._exchange
        if exchange is None:
            self.abort()  # bytes that nobody asked for
            return
        exchange.last_byte_s = now_s
        if exchange.first_byte_s != exchange.first_byte_s:  # NaN: not yet
            exchange.first_byte_s = now_s
        try:
            self._take(exchange, self._reader.feed(data), now_s)
        except ProtocolError as error:
            exchange.fail(Outcome.MALFORMED, now_s, error.message)
        if exchange.outcome is not None or self._reader.is_complete:
            self._end_of_response(exchange, now_s)

    def connection_lost(self, error: Exception | None) -> None:
        self._transport = None
        exchange, now_s = self._exchange, self._now()
        if exchange is not None:
            self._lose(exchange, error, now_s)
            self._exchange = None
        self._on_free(self)

    # The response.

    def _take(self, exchange: Exchange, body: bytes, now_s: float) -> None:
        if not body:
            if exchange.http_status == 0 and self._reader.status:
                self._begin(exchange)
            return
        if exchange.http_status == 0:
            self._begin(exchange)
        if self._events is None:
            self._keep(body)
            return
        for data in self._events.feed(body):
            exchange.take_event(data, now_s)
            if exchange.outcome is not None:
                return

    def _begin(self, exchange: Exchange) -> None:
        """The head is there."""
        exchange.http_status = self._reader.status
        exchange.server = self._reader.headers.get("server", "")
        kind = self._reader.headers.get("content-type", "")
        if self._reader.status == 200 and kind.startswith("text/event-stream"):
            self._events = EventSplitter()

    def _keep(self, body: bytes) -> None:
        limit = _MAX_ANSWER_BYTES if self._reader.status == 200 else _MAX_ERROR_BYTES
        self._body_bytes += len(body)
        if self._body_bytes > limit:
            raise ProtocolError("the answer is too long")
        self._body.append(body)

    def _end_of_response(self, exchange: Exchange, now_s: float) -> None:
        if exchange.outcome is None:
            self._conclude(exchange, now_s)
        self._exchange = None
        if self._reader.is_complete and self._reader.keeps_connection:
            self.free_since_s = now_s
            self._on_free(self)
        else:
            self.abort()

    def _conclude(self, exchange: Exchange, now_s: float) -> None:
        if self._events is not None:
            exchange.comments = self._events.comments
            exchange.finish(now_s)
        elif self._reader.status == 200:
            exchange.take_answer(b"".join(self._body), now_s)
            exchange.finish(now_s)
        else:
            self._refuse(exchange, now_s)

    def _refuse(self, exchange: Exchange, now_s: float) -> None:
        status, retry_after = self._reader.status, self._reader.headers.get("retry-after")
        if retry_after is not None and retry_after.isascii() and retry_after.isdigit():
            exchange.retry_after_s = float(retry_after)
        outcome = Outcome.SERVER_ERROR if status >= 500 else Outcome.REFUSED
        if status == 429 or (status == 503 and retry_after is not None):
            outcome = Outcome.SHED
        exchange.fail(outcome, now_s, f"{status}: {_reason(b''.join(self._body))}")

    def _lose(self, exchange: Exchange, error: Exception | None, now_s: float) -> None:
        """The connection went while a request was on it."""
        try:
            self._reader.end_of_connection()
        except ProtocolError as incomplete:
            exchange.fail(Outcome.RESET, now_s, str(error or incomplete.message))
        else:
            self._conclude(exchange, now_s)


def _reason(body: bytes) -> str:
    """The message of an error body, whatever its shape."""
    try:
        chunk = decode_chunk(body)
    except (ValueError, RecursionError):  # msgspec's errors and bad UTF-8 are both of the first
        return " ".join(body.decode(errors="replace").split())[:200]
    return error_text(chunk.error) if chunk.error is not None else body.decode()[:200]
