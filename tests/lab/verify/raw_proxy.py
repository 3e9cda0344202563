"""A proxy that changes answers as bytes: for faults that HTTP libraries would not let through.

It reads a whole answer before it passes any of it on, and goes on reading when its client leaves:
two faults of real proxies by itself.
"""

import asyncio
import contextlib
import re
from collections.abc import AsyncIterator, Callable
from urllib.parse import urlsplit

from steelyard.lab.verify.http_answer import AnswerParser

__all__ = ["Change", "raw_proxy"]

Change = Callable[[bytes], bytes | None]
"""The raw answer as it is passed on; None never answers."""

_LENGTH = re.compile(rb"(?i)content-length: (\d+)")
_CHUNKED = re.compile(rb"(?i)transfer-encoding: chunked")


@contextlib.asynccontextmanager
async def raw_proxy(url: str, change: Change, *, closes: bool = False) -> AsyncIterator[str]:
    """Gives the proxy's URL. With `closes`, connections end after one answer, without a word."""
    upstream = urlsplit(url)
    tasks: set[asyncio.Task[None]] = set()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        tasks.add(asyncio.current_task())  # type: ignore[arg-type]
        with contextlib.suppress(OSError, asyncio.IncompleteReadError):
            while True:
                answer = change(await _ask(upstream.hostname, upstream.port, await _read(reader)))
                if answer is None:
                    await asyncio.sleep(3600)
                    continue
                writer.write(answer)
                await writer.drain()
                if closes:
                    break
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    host, port = server.sockets[0].getsockname()[:2]
    try:
        yield f"http://{host}:{port}"
    finally:
        server.close()
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def _read(reader: asyncio.StreamReader) -> bytes:
    """A whole request."""
    head = await reader.readuntil(b"\r\n\r\n")
    if (length := _LENGTH.search(head)) is not None:
        return head + await reader.readexactly(int(length[1]))
    if _CHUNKED.search(head):
        return head + await reader.readuntil(b"0\r\n\r\n")
    return head


async def _ask(host: str | None, port: int | None, request: bytes) -> bytes:
    """The raw answer of the server behind."""
    reader, writer = await asyncio.open_connection(host, port)
    try:
        writer.write(request)
        parser, raw = AnswerParser(), b""
        while not parser.is_done:
            data = await reader.read(65536)
            raw += data
            if data:
                parser.feed(data)
            else:
                parser.end()
        return raw
    finally:
        writer.close()
