"""A server that answers with exactly the bytes a test tells it to."""

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

Write = Callable[[bytes], None]
Script = Callable[["Asked", asyncio.StreamWriter], Awaitable[None]]

HEAD = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"
END = b"0\r\n\r\n"


@dataclass
class Asked:
    """One request as it arrived."""

    number: int
    connection: int
    headers: dict[str, str]
    body: dict


@dataclass
class Scripted:
    url: str
    asked: list[Asked] = field(default_factory=list)
    connections: int = 0


def event(value: object) -> bytes:
    """A server-sent event in a chunk of its own."""
    text = value if isinstance(value, str) else json.dumps(value)
    data = f"data: {text}\n\n".encode()
    return b"%x\r\n%b\r\n" % (len(data), data)


def token(text: str, finish: str | None = None) -> bytes:
    return event({"choices": [{"delta": {"content": text}, "finish_reason": finish}]})


def answer(*texts: str) -> bytes:
    """A complete stream."""
    tokens = b"".join(map(token, texts))
    return HEAD + tokens + token("", "stop") + event("[DONE]") + END


@asynccontextmanager
async def scripted(script: Script, *, tls=None) -> AsyncIterator[Scripted]:
    """Serves `script`, which writes one answer; it may close the writer."""
    state = Scripted("")

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        connection, state.connections = state.connections, state.connections + 1
        try:
            while not writer.is_closing():
                asked = await _read(reader, len(state.asked), connection)
                state.asked.append(asked)
                await script(asked, writer)
                await writer.drain()
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0, ssl=tls)
    host, port = server.sockets[0].getsockname()[:2]
    state.url = f"http{'s' if tls else ''}://{host}:{port}"
    try:
        yield state
    finally:
        server.close()


async def _read(reader: asyncio.StreamReader, number: int, connection: int) -> Asked:
    head = (await reader.readuntil(b"\r\n\r\n")).decode()
    lines = [line.partition(": ") for line in head.split("\r\n")[1:] if line]
    headers = {name.lower(): value for name, _, value in lines}
    body = await reader.readexactly(int(headers["content-length"]))
    return Asked(number, connection, headers, json.loads(body))
