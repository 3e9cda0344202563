"""HTTP/1.1 on raw sockets: requests in, bytes out at once.

Written by hand because an answer's bytes must reach the kernel when `send` is called and not when
the event loop finds time, and because faults need the socket itself. Requests of one connection
are answered one after the other; bodies may have a length or be chunked. What requests mean is the
owner's business (`server`).
"""

import asyncio
import socket
import struct
from typing import NamedTuple, Protocol

from steelyard.lab.mock.answers import Refusal, render_answer

__all__ = ["Connection", "HttpRequest", "Owner"]

_MAX_HEAD_BYTES = 64 * 1024
_MAX_BODY_BYTES = 64 * 1024**2
_READ_BYTES = 256 * 1024
_LINGER_NOT = struct.pack("ii", 1, 0)
"""Closing discards what was not sent and resets the connection."""


class HttpRequest(NamedTuple):
    """A complete request."""

    method: str
    path: str
    """Without the query."""
    query: str
    """With its question mark; empty when there is none."""
    headers: dict[str, str]
    """Names in lower case."""
    body: bytes
    begun_ns: int
    """When its first bytes were read."""
    will_close: bool
    """The connection ends with its answer."""


class Owner(Protocol):
    """Whoever answers."""

    def now_ns(self) -> int:
        """The clock that stamps requests."""
        ...

    def handle(self, connection: "Connection", request: HttpRequest) -> None:
        """Answer now or later; `connection.answered()` when all is sent."""
        ...

    def lost(self, connection: "Connection") -> None:
        """The client is gone, or the connection was closed. Called once."""
        ...


class _Head(NamedTuple):
    method: str
    path: str
    query: str
    headers: dict[str, str]
    will_close: bool
    length: int
    """Bytes of the body; -1 when it is chunked."""


class Connection:
    """One client's socket."""

    def __init__(
        self, sock: socket.socket, number: int, owner: Owner, loop: asyncio.AbstractEventLoop
    ) -> None:
        sock.setblocking(False)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.number = number
        self.is_open = True
        self._socket = sock
        self._owner = owner
        self._loop = loop
        self._received = bytearray()
        self._head: _Head | None = None
        self._begun_ns = 0
        self._unsent = bytearray()
        self._is_busy = False
        self._closes_when_sent = False
        loop.add_reader(sock, self._read)

    @property
    def unsent_bytes(self) -> int:
        """What the kernel has not taken yet, because the client reads too slowly."""
        return len(self._unsent)

    def send(self, data: bytes) -> None:
        """Hand `data` to the kernel, now if it takes it. Does nothing when the client is gone."""
        if not self.is_open:
            return
        if self._unsent:
            self._unsent += data
            return
        try:
            sent = self._socket.send(data)
        except BlockingIOError:
            sent = 0
        except OSError:
            self._lose()
            return
        if sent < len(data):
            self._unsent += data[sent:]
            self._loop.add_writer(self._socket, self._flush)

    def answered(self, *, close: bool) -> None:
        """The answer to the present request is complete; go on with the next."""
        self._is_busy = False
        if close:
            self.close()
        elif self.is_open and self._received:
            self._loop.call_soon(self._advance)

    def close(self) -> None:
        """Close after what was sent has left."""
        if self._unsent:
            self._closes_when_sent = True
        else:
            self._lose()

    def reset(self) -> None:
        """Break the connection so that the client sees a reset."""
        if self.is_open:
            self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _LINGER_NOT)
            self._lose()

    def _read(self) -> None:
        try:
            data = self._socket.recv(_READ_BYTES)
        except (BlockingIOError, InterruptedError):
            return
        except OSError:
            data = b""
        if not data:
            self._lose()
            return
        if not self._received:
            self._begun_ns = self._owner.now_ns()
        self._received += data
        if not self._is_busy:
            self._advance()
        elif len(self._received) > _MAX_BODY_BYTES:
            self.reset()  # pipelines more than anyone would wait for

    def _advance(self) -> None:
        """Start on the next request if it is complete."""
        if self._is_busy or not self.is_open:
            return
        try:
            request = self._next_request()
        except Refusal as refusal:
            self._is_busy = True
            self.send(render_answer(refusal.status, refusal.body, close=True))
            self.close()
            return
        if request is not None:
            self._is_busy = True
            self._begun_ns = self._owner.now_ns()  # of what follows, if anything does
            self._owner.handle(self, request)

    def _next_request(self) -> HttpRequest | None:
        """Take a complete request from what was received; None while it is not complete."""
        received = self._received
        if self._head is None:
            end = received.find(b"\r\n\r\n", 0, _MAX_HEAD_BYTES)
            if end < 0:
                if len(received) > _MAX_HEAD_BYTES:
                    raise Refusal(431, "The header is too large.")
                return None
            self._head = _parse_head(bytes(received[:end]))
            del received[: end + 4]
            if self._head.headers.get("expect", "").lower() == "100-continue":
                self.send(b"HTTP/1.1 100 Continue\r\n\r\n")
        head = self._head
        body = _take_chunks(received) if head.length < 0 else _take_bytes(received, head.length)
        if body is None:
            return None
        self._head = None
        return HttpRequest(
            head.method,
            head.path,
            head.query,
            head.headers,
            body,
            self._begun_ns,
            head.will_close,
        )

    def _flush(self) -> None:
        try:
            sent = self._socket.send(self._unsent)
        except BlockingIOError:
            return
        except OSError:
            self._lose()
            return
        del self._unsent[:sent]
        if not self._unsent:
            self._loop.remove_writer(self._socket)
            if self._closes_when_sent:
                self._lose()

    def _lose(self) -> None:
        if not self.is_open:
            return
        self.is_open = False
        self._loop.remove_reader(self._socket)
        self._loop.remove_writer(self._socket)
        self._socket.close()
        self._unsent.clear()
        self._owner.lost(self)


def _parse_head(head: bytes) -> _Head:
    request_line, *lines = head.decode("latin-1").split("\r\n")
    parts = request_line.split(" ")
    if len(parts) != 3 or not parts[2].startswith("HTTP/1."):
        raise Refusal(400, "The request is not valid HTTP/1.1.")
    headers = {
        name.strip().lower(): value.strip()
        for name, _, value in (line.partition(":") for line in lines)
    }
    wish = headers.get("connection", "").lower()
    will_close = wish == "close" or (parts[2] == "HTTP/1.0" and wish != "keep-alive")
    is_chunked = headers.get("transfer-encoding", "").lower() == "chunked"
    length = headers.get("content-length", "0")
    if not (length.isascii() and length.isdecimal()):
        raise Refusal(400, "content-length must be a number.")
    if int(length) > _MAX_BODY_BYTES:
        raise Refusal(413, "The body is too large.", code="payload_too_large")
    path, mark, query = parts[1].partition("?")
    body_bytes = -1 if is_chunked else int(length)
    return _Head(parts[0], path, mark + query, headers, will_close, body_bytes)


def _take_bytes(received: bytearray, length: int) -> bytes | None:
    if len(received) < length:
        return None
    body = bytes(received[:length])
    del received[:length]
    return body


def _take_chunks(received: bytearray) -> bytes | None:
    """The body in HTTP chunks, without trailers; None while it is not complete."""
    body = bytearray()
    at = 0
    while (line_end := received.find(b"\r\n", at)) >= 0:
        size_text = received[at:line_end].partition(b";")[0].strip()
        try:
            size = int(size_text, 16)
        except ValueError:
            raise Refusal(400, "A chunk's size is no number.") from None
        begin, end = line_end + 2, line_end + 2 + size
        if size < 0 or len(body) + size > _MAX_BODY_BYTES:
            raise Refusal(413, "The body is too large.", code="payload_too_large")
        if len(received) < end + 2:
            return None
        body += received[begin:end]
        at = end + 2
        if size == 0:
            del received[:at]
            return bytes(body)
    return None
