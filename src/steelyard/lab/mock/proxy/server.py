"""Passes requests on to the upstream server and its answers back, through the planted faults.

Speaks HTTP down with the mock's own connections, because a missing header must really be missing,
and up with aiohttp. A client that leaves ends its upstream request. What a fault changes is
decided in `faults`; timing is not touched beyond the proxy's own milliseconds.
"""

import asyncio
import itertools
import socket
import time
from collections.abc import AsyncIterator, Sequence
from typing import Any

import aiohttp
import msgspec
from yarl import URL

from steelyard.contract.errors import SettingsError
from steelyard.lab.mock.answers import Refusal, render_answer
from steelyard.lab.mock.connections import Connection, HttpRequest
from steelyard.lab.mock.proxy.faults import AnswerHead, Fault, Passage

__all__ = ["FaultProxy"]

_HOP_BY_HOP = frozenset(
    {"connection", "content-length", "host", "keep-alive", "te", "transfer-encoding", "upgrade"}
    | {"accept-encoding", "expect"}
)
_ANSWER_HEADERS = ("x-request-id", "retry-after", "www-authenticate", "allow", "server")
"""Of the upstream's answer, besides its content type: what clients look at."""


class FaultProxy:
    """One listening socket in front of one server."""

    def __init__(
        self, upstream: str, faults: Sequence[Fault], *, host: str = "127.0.0.1", port: int = 0
    ) -> None:
        self._upstream = upstream.rstrip("/")
        self._faults = faults
        self._host = host
        self._port = port
        self._exchanges: dict[Connection, asyncio.Task[None] | None] = {}
        self._numbers = itertools.count()

    @property
    def url(self) -> str:
        """Where clients find it. Valid between `startup` and `shutdown`."""
        host, port, *_ = self._listener.getsockname()
        return f"http://{host}:{port}"

    async def startup(self) -> None:
        """Listen. Raises `SettingsError` when the address cannot be had."""
        if not self._upstream.startswith(("http://", "https://")):
            raise SettingsError(f"{self._upstream!r} is no http:// or https:// URL", param="URL")
        try:
            self._listener = socket.create_server((self._host, self._port), backlog=1024)
        except OSError as error:
            where = f"{self._host}:{self._port}"
            raise SettingsError(f"cannot listen on {where}: {error.strerror or error}") from error
        self._listener.setblocking(False)
        self._loop = asyncio.get_running_loop()
        self._session = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(limit=0), timeout=aiohttp.ClientTimeout(total=None)
        )
        self._loop.add_reader(self._listener, self._accept)

    async def shutdown(self) -> None:
        """Close everything; running answers break off."""
        self._loop.remove_reader(self._listener)
        self._listener.close()
        tasks = [task for task in self._exchanges.values() if task is not None]
        for connection in list(self._exchanges):
            connection.close()
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await self._session.close()

    # What connections call.

    def now_ns(self) -> int:
        return time.monotonic_ns()

    def handle(self, connection: Connection, request: HttpRequest) -> None:
        self._exchanges[connection] = self._loop.create_task(self._exchange(connection, request))

    def lost(self, connection: Connection) -> None:
        task = self._exchanges.pop(connection, None)
        if task is not None:
            task.cancel()

    async def _exchange(self, connection: Connection, request: HttpRequest) -> None:
        """One request there and back."""
        try:
            await self._pass_on(connection, request)
        except aiohttp.ClientError as error:
            refusal = Refusal(502, f"The upstream server failed: {error}", code="upstream_failed")
            connection.send(render_answer(502, refusal.body, close=True))
            connection.close()
            return
        if connection in self._exchanges:
            self._exchanges[connection] = None
            connection.answered(close=request.will_close)

    async def _pass_on(self, connection: Connection, request: HttpRequest) -> None:
        passage = Passage(request.path)
        body = self._changed_request(request.body, passage)
        headers = {k: v for k, v in request.headers.items() if k not in _HOP_BY_HOP}
        url = URL(self._upstream + request.path + request.query, encoded=True)
        async with self._session.request(request.method, url, data=body, headers=headers) as answer:
            head = AnswerHead(answer.status, answer.headers.get("content-type"))
            is_stream = (head.content_type or "").startswith("text/event-stream")
            for fault in self._faults:
                fault.on_head(head, passage)
            kept = {k: answer.headers[k] for k in _ANSWER_HEADERS if k in answer.headers}
            if is_stream:
                await self._send_stream(connection, head, kept, _blocks(answer), passage)
            else:
                whole = self._changed_answer(await answer.read(), head, passage)
                connection.send(_render(head, kept, whole, close=request.will_close))

    async def _send_stream(
        self,
        connection: Connection,
        head: AnswerHead,
        kept: dict[str, str],
        blocks: AsyncIterator[bytes],
        passage: Passage,
    ) -> None:
        connection.send(_render(head, kept, None))
        async for block in blocks:
            changed = self._changed_block(block, passage)
            if changed:
                connection.send(b"%x\r\n%b\r\n" % (len(changed), changed))
        connection.send(b"0\r\n\r\n")

    def _changed_request(self, body: bytes, passage: Passage) -> bytes:
        asked = _as_object(body)
        if asked is None:
            return body
        for fault in self._faults:
            asked = fault.on_request(asked, passage)
        return msgspec.json.encode(asked)

    def _changed_answer(self, body: bytes, head: AnswerHead, passage: Passage) -> bytes:
        answer = _as_object(body)
        if answer is None:
            return body
        for fault in self._faults:
            answer = fault.on_answer(answer, head, passage)
        return msgspec.json.encode(answer)

    def _changed_block(self, block: bytes, passage: Passage) -> bytes:
        """A block of a stream, ended by its empty line; comments pass."""
        data = block.removeprefix(b"data:").strip()
        if data == b"[DONE]":
            return block if all(fault.keeps_done() for fault in self._faults) else b""
        event = _as_object(data) if block.startswith(b"data:") else None
        if event is None:
            return block
        passage.text_events += _has_text(event)
        events = [event]
        for fault in self._faults:
            events = [changed for one in events for changed in fault.on_event(one, passage)]
        return b"".join(b"data: %b\n\n" % msgspec.json.encode(one) for one in events)

    def _accept(self) -> None:
        try:
            sock, _ = self._listener.accept()
        except OSError:
            return  # the client has left already, or waits until a connection closes
        connection = Connection(sock, next(self._numbers), self, self._loop)
        self._exchanges[connection] = None


def _has_text(event: dict[str, Any]) -> bool:
    for choice in event.get("choices") or ():
        delta = choice.get("delta")
        if delta.get("content") if isinstance(delta, dict) else choice.get("text"):
            return True
    return False


def _as_object(body: bytes) -> dict[str, Any] | None:
    """The JSON object in `body`; None when there is none, which then passes unchanged."""
    try:
        value = msgspec.json.decode(body)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return None
    return value if isinstance(value, dict) else None


async def _blocks(answer: aiohttp.ClientResponse) -> AsyncIterator[bytes]:
    """The stream cut behind each empty line; what follows the last one comes last."""
    rest = b""
    async for data in answer.content.iter_any():
        rest += data.replace(b"\r\n", b"\n")
        while (end := rest.find(b"\n\n")) >= 0:
            yield rest[: end + 2]
            rest = rest[end + 2 :]
    if rest:
        yield rest


def _render(
    head: AnswerHead, kept: dict[str, str], body: bytes | None, *, close: bool = False
) -> bytes:
    """An answer's head, with its body when that is complete."""
    headers = "".join(f"{name}: {value}\r\n" for name, value in kept.items())
    if body is not None:
        return render_answer(
            head.status, body, content_type=head.content_type, headers=headers, close=close
        )
    kind = f"content-type: {head.content_type}\r\n" if head.content_type is not None else ""
    lines = f"HTTP/1.1 {head.status} OK\r\n{kind}transfer-encoding: chunked\r\n{headers}\r\n"
    return lines.encode("latin-1")
