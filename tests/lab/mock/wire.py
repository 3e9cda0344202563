"""Plain HTTP over plain sockets: every byte the mock sends, as it sent it."""

import asyncio
import json
from dataclasses import dataclass
from typing import Any

__all__ = ["Reply", "Wire", "ask", "chat", "completion"]


@dataclass(frozen=True)
class Reply:
    """One answer, as far as it came."""

    status: int
    headers: dict[str, str]
    body: bytes
    is_complete: bool
    """The body ended as HTTP says it must."""

    @property
    def json(self) -> Any:
        return json.loads(self.body)

    @property
    def blocks(self) -> list[str]:
        return [block for block in self.body.decode().split("\n\n") if block]

    @property
    def events(self) -> list[Any]:
        """Decoded events, `[DONE]` and comments left out."""
        data = [b.removeprefix("data: ") for b in self.blocks if b.startswith("data: ")]
        return [json.loads(one) for one in data if one != "[DONE]"]

    @property
    def is_done(self) -> bool:
        return bool(self.blocks) and self.blocks[-1] == "data: [DONE]"

    @property
    def text(self) -> str:
        """Text of all events, or of the complete answer."""
        choices = [c for e in (self.events or [self.json]) for c in e["choices"]]
        parts = (c.get("delta") or c.get("message") or {"content": c.get("text")} for c in choices)
        return "".join(part.get("content") or "" for part in parts)

    @property
    def usage(self) -> Any:
        found = [e["usage"] for e in (self.events or [self.json]) if e.get("usage")]
        return found[-1] if found else None

    @property
    def finish_reason(self) -> Any:
        found = [c["finish_reason"] for e in (self.events or [self.json]) for c in e["choices"]]
        return found[-1] if found else None


class Wire:
    """A connection of its own."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self.writer = writer

    @classmethod
    async def open(cls, url: str) -> "Wire":
        host, _, port = url.removeprefix("http://").rpartition(":")
        return cls(*await asyncio.open_connection(host, int(port)))

    async def ask(self, method: str, path: str, body: bytes = b"", *fields: str) -> Reply:
        lines = [f"{method} {path} HTTP/1.1", "host: test", f"content-length: {len(body)}", *fields]
        self.writer.write("\r\n".join(lines).encode() + b"\r\n\r\n" + body)
        return await self.reply()

    async def reply(self) -> Reply:
        """The next answer. Raises `ConnectionResetError` when the connection is reset."""
        head = (await self._reader.readuntil(b"\r\n\r\n")).decode("latin-1")
        status_line, *lines = head.strip().split("\r\n")
        headers = {k.lower(): v.strip() for k, _, v in (line.partition(":") for line in lines)}
        status = int(status_line.split()[1])
        if headers.get("transfer-encoding") == "chunked":
            body, is_complete = await self._chunks()
        else:
            length = int(headers["content-length"])
            body = await self._reader.read(0)
            while len(body) < length and (more := await self._reader.read(length - len(body))):
                body += more
            is_complete = len(body) == length
        return Reply(status, headers, body, is_complete)

    async def _chunks(self) -> tuple[bytes, bool]:
        body = b""
        while True:
            line = await self._reader.readline()
            if not line:
                return body, False
            size = int(line, 16)
            body += (await self._reader.readexactly(size + 2))[:-2]
            if size == 0:
                return body, True

    def close(self) -> None:
        self.writer.close()


async def ask(url: str, method: str, path: str, body: bytes = b"", *fields: str) -> Reply:
    """One request on a connection of its own."""
    wire = await Wire.open(url)
    try:
        return await wire.ask(method, path, body, *fields)
    finally:
        wire.close()


async def chat(url: str, **asked: Any) -> Reply:
    """A streamed chat, unless said otherwise."""
    usual = {"model": "m", "messages": [{"role": "user", "content": "a b c"}], "stream": True}
    return await ask(url, "POST", "/v1/chat/completions", json.dumps({**usual, **asked}).encode())


async def completion(url: str, **asked: Any) -> Reply:
    """A streamed completion of three token ids, unless said otherwise."""
    usual = {"model": "m", "prompt": [5, 6, 7], "stream": True}
    return await ask(url, "POST", "/v1/completions", json.dumps({**usual, **asked}).encode())
