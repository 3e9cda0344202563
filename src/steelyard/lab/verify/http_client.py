"""Sends requests over sockets of its own and records what comes back. HTTP/1.1, one at a time.

Correctness before speed: the load generator has a client of its own. Reading is done by
`http_answer`; retries, redirects and content codings are not: an answer is shown as it came.
"""

import asyncio
import contextlib
import ssl
import time
from collections.abc import AsyncIterator

from steelyard.lab.verify.exchange import Exchange, HttpRequest, Piece
from steelyard.lab.verify.http_answer import AnswerParser
from steelyard.lab.verify.target import Target

__all__ = ["CANNOT_CONNECT", "Connection", "OpenExchange", "send"]

_CONNECT_S = 10.0
_READ_BYTES = 64 * 1024
_CHUNK_BYTES = 100


CANNOT_CONNECT = (OSError, UnicodeError)
"""What opening a connection raises: nobody there, no such name, no trusted certificate, silence."""


async def send(target: Target, request: HttpRequest, *, timeout_s: float | None = None) -> Exchange:
    """One request on a connection of its own. `timeout_s` None leaves the waiting to the caller."""
    try:
        connection = await Connection.open(target)
    except CANNOT_CONNECT as error:
        why = f"cannot connect: {error or 'no answer'}"
        return Exchange(request, None, (), (why,), 0.0)
    async with contextlib.aclosing(connection):
        opened = await connection.begin(request)
        try:
            async with asyncio.timeout(timeout_s):
                return await opened.finish()
        except TimeoutError:
            opened.fail(f"no answer within {timeout_s:g} s")
            return opened.exchange()


class Connection:
    """A connection that may carry several requests, one after the other."""

    def __init__(
        self, target: Target, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        self._target = target
        self._reader = reader
        self._writer = writer
        self._unread = b""
        """Bytes that arrived with the answer before the one they belong to."""

    @classmethod
    async def open(cls, target: Target) -> "Connection":
        """Raises one of `CANNOT_CONNECT`."""
        context = ssl.create_default_context() if target.is_tls else None
        async with asyncio.timeout(_CONNECT_S):
            reader, writer = await asyncio.open_connection(target.host, target.port, ssl=context)
        return cls(target, reader, writer)

    async def send(self, request: HttpRequest) -> Exchange:
        """Send and read to the answer's end."""
        return await (await self.begin(request)).finish()

    async def begin(self, request: HttpRequest, *, pause_s: float | None = None) -> "OpenExchange":
        """Send, and leave the reading to the caller. With `pause_s`, in two parts."""
        data = _encode(self._target, request)
        parts = [data] if pause_s is None else [data[: len(data) // 2], data[len(data) // 2 :]]
        opened = OpenExchange(request, self)
        for part in parts:
            if part is not parts[0]:
                await asyncio.sleep(pause_s or 0.0)
            await self._write(part, [opened])
        return opened

    async def begin_all(self, requests: list[HttpRequest]) -> list["OpenExchange"]:
        """Send several requests in one write; their answers must be read in order."""
        opened = [OpenExchange(request, self, is_last=False) for request in requests[:-1]]
        opened.append(OpenExchange(requests[-1], self))
        await self._write(b"".join(_encode(self._target, r) for r in requests), opened)
        return opened

    async def read(self) -> bytes:
        """The next bytes; empty at the end. Raises `OSError`."""
        if self._unread:
            data, self._unread = self._unread, b""
            return data
        return await self._reader.read(_READ_BYTES)

    def unread(self, data: bytes) -> None:
        """Give back what belongs to the next answer."""
        self._unread = data + self._unread

    async def aclose(self) -> None:
        """Close the connection, whatever is under way on it."""
        self._writer.close()
        with contextlib.suppress(OSError):
            await self._writer.wait_closed()

    async def _write(self, data: bytes, opened: list["OpenExchange"]) -> None:
        try:
            self._writer.write(data)
            await self._writer.drain()
        except OSError as error:
            for one in opened:
                one.fail(f"the connection broke while sending: {error}")


class OpenExchange:
    """A request whose answer is being read."""

    def __init__(
        self, request: HttpRequest, connection: Connection, *, is_last: bool = True
    ) -> None:
        self._request = request
        self._connection = connection
        self._is_last = is_last
        """False when the answer to another request follows on the connection."""
        self._parser = AnswerParser(is_answer_to_head=request.method == "HEAD")
        self._sent_s = time.monotonic()
        self._ended_s: float | None = None
        self._pieces: list[Piece] = []
        self._faults: list[str] = []

    def fail(self, why: str) -> None:
        """The connection is of no more use."""
        self._faults.append(why)

    async def finish(self) -> Exchange:
        """Read to the end of the answer or of the connection."""
        async for _ in self.pieces():
            pass
        return self.exchange()

    async def pieces(self) -> AsyncIterator[Piece]:
        """Body bytes as they arrive, to the end of the answer or of the connection."""
        while not self._parser.is_done:
            try:
                data = await self._connection.read()
            except OSError as error:
                self.fail(f"the connection broke: {error}")
                break
            body = self._parser.feed(data)
            if not data:
                self._parser.end()
            if body:
                self._pieces.append(Piece(body, time.monotonic() - self._sent_s))
                yield self._pieces[-1]
        self._ended_s = time.monotonic()
        rest = self._parser.rest
        if rest and self._is_last:
            self.fail(f"bytes after the end of the answer: {rest[:40]!r}")
        elif rest:
            self._connection.unread(rest)

    def exchange(self) -> Exchange:
        """What is known so far."""
        return Exchange(
            self._request,
            self._parser.head,
            tuple(self._pieces),
            (*self._parser.faults, *self._faults),
            (self._ended_s or time.monotonic()) - self._sent_s,
        )


def _encode(target: Target, request: HttpRequest) -> bytes:
    fields = {"host": target.authority, "accept": "*/*", "user-agent": "steelyard-verify"}
    key = target.api_key if request.key is None else request.key
    if key:
        fields["authorization"] = f"Bearer {key}"
    body = request.body
    if body is not None:
        fields["content-type"] = "application/json"
        if request.is_chunked:
            fields["transfer-encoding"] = "chunked"
            body = _in_chunks(body)
        else:
            fields["content-length"] = str(len(body))
    fields |= dict(request.fields)
    lines = [f"{request.method} {target.base_path}{request.path} HTTP/1.1"]
    lines += [f"{name}: {value}" for name, value in fields.items()]
    return "\r\n".join(lines).encode("latin-1") + b"\r\n\r\n" + (body or b"")


def _in_chunks(body: bytes) -> bytes:
    parts = [body[at : at + _CHUNK_BYTES] for at in range(0, len(body), _CHUNK_BYTES)]
    return b"".join(b"%x\r\n%b\r\n" % (len(part), part) for part in parts) + b"0\r\n\r\n"
