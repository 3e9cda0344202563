"""One client connection: aiohttp's protocol, with deadlines and caps it does not have.

aiohttp lets a client send its header at a byte per second for as long as it likes, buffers for
readers that never read, and answers broken HTTP in its own words. The states that matter:

    waiting for a header ── bytes ──> reading a header ── complete ──> busy ── answered ──> idle
        header_timeout_s            header_timeout_s, max_header_bytes   |        idle_timeout_s
                                                            body_timeout_s (exchange)

Deadlines are plain numbers that the server's sweep compares with the clock, so that a request
costs no timers. Sockets live in real time: the loop's clock is used here, not `contract.Clock`.
"""

import asyncio
import logging
import math
from typing import Any, cast

from aiohttp import web
from aiohttp.http_exceptions import LineTooLong
from aiohttp.streams import StreamReader

from steelyard.gateway.config import HttpLimits
from steelyard.gateway.errors import Refusal, http_refusal
from steelyard.gateway.http.answers import render_head
from steelyard.gateway.http.sockets import limit_unsent_bytes
from steelyard.telemetry.metrics import CloseReason, ConnectionMeter

__all__ = ["ClientGone", "Connection", "IncompleteBody"]

_log = logging.getLogger(__name__)


class ClientGone(ConnectionError):
    """There is nobody to write to any more."""


class IncompleteBody(Exception):
    """The client stopped sending in the middle of a body."""


class Connection(web.RequestHandler):
    """A socket, its parser, and how patient we are with it."""

    __slots__ = (
        "_door_limits",
        "_header_bytes",
        "_meter",
        "_newest_body",
        "_read_deadline_s",
        "_socket",
        "_unanswered",
        "_write_deadline_s",
        "close_reason",
    )

    def __init__(
        self,
        server: web.Server,
        limits: HttpLimits,
        meter: ConnectionMeter,
        loop: asyncio.AbstractEventLoop,
    ) -> None:
        super().__init__(
            server,
            loop=loop,
            # Ours replaces it: theirs does not cover a header that is on its way.
            keepalive_timeout=10 * limits.idle_timeout_s,
            lingering_time=limits.linger_s,
            # A compressed body would pass the byte cap and unfold behind it.
            auto_decompress=False,
            access_log=None,  # type: ignore[arg-type]  # None switches it off (aiohttp docs)
            logger=_log,
        )
        self._door_limits = limits
        self._header_bytes = 0
        self._unanswered = 0
        self._read_deadline_s = math.inf
        self._write_deadline_s = math.inf
        self._meter = meter
        self.close_reason: CloseReason = "client"
        """Why this connection ends; the first one to know writes it here."""
        self._newest_body: StreamReader | None = None
        """Of the request parsed last; None once it is answered."""

    # What asyncio calls.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        self._socket = cast(asyncio.Transport, transport)  # uvloop's does not inherit from it
        limits = self._door_limits
        self._socket.set_write_buffer_limits(high=limits.write_buffer_bytes)
        limit_unsent_bytes(self._socket)
        self._read_deadline_s = self._loop.time() + limits.header_timeout_s

    def data_received(self, data: bytes) -> None:
        before = self._request_count
        super().data_received(data)
        if self._request_count != before:
            self._unanswered += self._request_count - before
            self._newest_body = self._messages[-1][1]
            self._header_bytes = 0
            self._read_deadline_s = math.inf
        elif self._unanswered == 0 and data:
            self._count_header_bytes(len(data))

    def eof_received(self) -> bool:  # type: ignore[override]  # asyncio allows a result
        """True keeps our half open: the request is refused before the connection closes."""
        body = self._newest_body
        if body is not None and not body.is_eof():
            body.set_exception(IncompleteBody())
            body.feed_eof()
            return True
        if self._unanswered == 0 and self._header_bytes:
            refusal = http_refusal(400, "incomplete_request", "The request ends in its header.")
            self._refuse(refusal, "bad_request")
        return False

    def pause_writing(self) -> None:
        super().pause_writing()
        self._write_deadline_s = self._loop.time() + self._door_limits.write_timeout_s

    def resume_writing(self) -> None:
        super().resume_writing()
        self._write_deadline_s = math.inf

    # What exchange and server call.

    def write(self, data: bytes) -> None:
        """Hand bytes to the socket. Raises `ClientGone`."""
        transport = self.transport
        if transport is None or transport.is_closing():
            raise ClientGone
        transport.write(data)

    async def drain(self) -> None:
        """Wait until the client has taken most of what was written. Raises `ClientGone`."""
        if self.writing_paused:
            try:
                await self._drain_helper()
            except ConnectionError:
                raise ClientGone from None

    def answered(self, *, will_close: bool) -> None:
        """The answer to the oldest request has been written completely."""
        self._unanswered -= 1
        if will_close:
            self._note("server")
        if self._unanswered == 0:
            self._newest_body = None
            self._read_deadline_s = self._loop.time() + self._door_limits.idle_timeout_s

    def check_deadlines(self, now_s: float) -> None:
        """Close the connection when its client has been too slow. `now_s` is the loop's time."""
        if self._write_deadline_s == math.inf and self._socket.is_closing():
            # Closing waits for the last bytes to be taken; so must its deadline begin somewhere.
            self._write_deadline_s = now_s + self._door_limits.write_timeout_s
        if now_s >= self._write_deadline_s:
            self._abort("write_timeout")
        elif now_s >= self._read_deadline_s:
            self._read_deadline_s = math.inf
            if self._close:  # it was refused, and has had the time to see it
                self._abort("bad_request")
            elif self._header_bytes:
                refusal = http_refusal(408, "request_timeout", "The header took too long.")
                self._refuse(refusal, "header_timeout")
            else:
                self._close_gently("idle_timeout")

    def close_if_idle(self) -> None:
        """Close unless a request is being answered or has begun to arrive."""
        if self._unanswered == 0 and self._header_bytes == 0:
            self._close_gently("shutdown")

    def count_close(self) -> None:
        """Tell the metrics; called once the connection is gone."""
        self._meter.closed(self.close_reason)

    # What aiohttp calls.

    def handle_error(
        self,
        request: web.BaseRequest,
        status: int = 500,
        exc: BaseException | None = None,
        message: str | None = None,
    ) -> web.StreamResponse:
        """Answer what the parser refused; our own handlers never get here."""
        _log.debug("malformed HTTP: %s", message)
        self._note("bad_request")
        refusal = _parse_refusal(exc)
        response = web.Response(
            status=refusal.status,
            body=refusal.body,
            content_type="application/json",
            headers={"server": "steelyard"},  # theirs names versions
        )
        response.force_close()
        return response

    def log_exception(self, *args: Any, **kw: Any) -> None:
        """What aiohttp did not expect of a client; our handlers' errors are logged elsewhere."""
        _log.debug(*args, **kw)

    def _count_header_bytes(self, count: int) -> None:
        limits = self._door_limits
        if self._close:  # refused; what still comes is thrown away, within reason
            self._header_bytes += count
            if self._header_bytes > _MAX_DISCARDED_BYTES:
                self._abort("bad_request")
            return
        if self._header_bytes == 0:
            self._read_deadline_s = min(
                self._read_deadline_s, self._loop.time() + limits.header_timeout_s
            )
        self._header_bytes += count
        if self._header_bytes > limits.max_header_bytes:
            self._refuse(_HEADER_TOO_LARGE, "bad_request")

    def _refuse(self, refusal: Refusal, reason: CloseReason) -> None:
        """Answer without a request, and let go of the connection after a moment."""
        transport = self.transport
        if transport is None or transport.is_closing() or self._close:
            return
        head = render_head(
            refusal.status,
            "application/json",
            refusal.headers,
            length=len(refusal.body),
            close=True,
        )
        transport.write(head + refusal.body)
        self._note(reason)
        # Ignores further input and ends aiohttp's loop; the socket stays open until the client
        # has had time to read, because closing over unread input would reset the connection.
        self.close()
        self._header_bytes = 0
        self._read_deadline_s = self._loop.time() + self._door_limits.linger_s

    def _close_gently(self, reason: CloseReason) -> None:
        """Close once the client has taken what was written."""
        self._note(reason)
        self.close()
        self._socket.close()

    def _abort(self, reason: CloseReason) -> None:
        """Close now."""
        self._note(reason)
        self._socket.abort()

    def _note(self, reason: CloseReason) -> None:
        if self.close_reason == "client":
            self.close_reason = reason


_MAX_DISCARDED_BYTES = 1024**2

_HEADER_TOO_LARGE = http_refusal(431, "header_too_large", "The request's header is too large.")


def _parse_refusal(error: BaseException | None) -> Refusal:
    if isinstance(error, LineTooLong):
        return _HEADER_TOO_LARGE
    # The parser's own text quotes the input; the client knows what it sent.
    return http_refusal(400, "malformed_http", "The request is not valid HTTP/1.1.")
