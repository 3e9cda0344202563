"""Reads a form with a file in it (multipart/form-data), the file straight to where it is kept.

Sizes, numbers and pace are bounded before anything is kept; what the fields mean is the caller's
business.
"""

import asyncio
from collections.abc import Awaitable
from dataclasses import dataclass, field
from typing import BinaryIO, TypeVar

from aiohttp import BodyPartReader, MultipartReader, web
from aiohttp.http_exceptions import HttpProcessingError
from aiohttp.web_protocol import RequestPayloadError

from steelyard.contract.errors import InternalError
from steelyard.gateway.config import HttpLimits
from steelyard.gateway.errors import Refusal, http_refusal
from steelyard.gateway.http.body import check_header, too_large
from steelyard.gateway.http.connection import Connection, IncompleteBody

__all__ = ["Form", "read_form"]

T = TypeVar("T")

_FORM_BYTES = 64 * 1024
"""What a form may have besides its file."""

_MAX_PARTS = 16
_MAX_FIELD_BYTES = 1024

_LEAST_BYTES_PER_S = 64 * 1024
"""An upload that is slower than this for long is refused: it holds a connection and a file."""

_CHUNK_BYTES = 256 * 1024


@dataclass(slots=True)
class Form:
    """What was sent."""

    fields: dict[str, str] = field(default_factory=dict)
    file_name: str | None = None
    """None: there was no part called `file`."""
    file_bytes: int = 0


async def read_form(
    request: web.BaseRequest,
    connection: Connection,
    limits: HttpLimits,
    content: BinaryIO,
    max_bytes: int,
) -> Form:
    """Read all of it; the part `file` goes to `content`. Raises `Refusal` (400, 408, 411, 413,
    415, 417), or `InternalError` when `content` cannot be written."""
    check_header(request, "multipart/form-data", max_bytes + _FORM_BYTES)
    if "Expect" in request.headers:
        connection.write(b"HTTP/1.1 100 Continue\r\n\r\n")
    # So long may it take at worst; and no wait may be longer than that for a whole small body.
    longest_s = limits.body_timeout_s + max_bytes / _LEAST_BYTES_PER_S
    try:
        async with asyncio.timeout(longest_s):
            return await _FormReader(limits.body_timeout_s, content, max_bytes).read(request)
    except TimeoutError:
        connection.close_reason = "body_timeout"
        raise http_refusal(
            408, "request_timeout", "The body took too long to arrive.", close=True
        ) from None
    except IncompleteBody:
        raise http_refusal(
            400, "incomplete_request", "The body ends before its announced length.", close=True
        ) from None
    except RequestPayloadError:
        request.content.feed_eof()  # nothing can follow; aiohttp must not wait for it
        raise _malformed("The body's chunked encoding is broken.") from None
    except (HttpProcessingError, ValueError, AssertionError, LookupError):
        # What aiohttp's reader raises for what it cannot read.
        raise _malformed("The form cannot be read.") from None


class _FormReader:
    def __init__(self, wait_s: float, content: BinaryIO, max_bytes: int) -> None:
        self._wait_s = wait_s
        self._content = content
        self._max_bytes = max_bytes
        self._form = Form()

    async def read(self, request: web.BaseRequest) -> Form:
        reader = MultipartReader(request.headers, request.content)
        for _ in range(_MAX_PARTS):
            part = await self._in_time(reader.next())
            if part is None:
                return self._form
            if not isinstance(part, BodyPartReader) or part.name is None:
                raise _malformed("A part of the form has no name.")
            if part.headers.get("Content-Transfer-Encoding", "binary").lower() not in _PLAIN:
                raise _malformed("Parts of the form must be sent as they are.")
            await self._take(part, part.name)
        raise _malformed(f"The form has more than {_MAX_PARTS} parts.")

    async def _take(self, part: BodyPartReader, name: str) -> None:
        form = self._form
        if name in form.fields or (name == "file" and form.file_name is not None):
            raise _malformed("The form has two parts of one name.")
        if name == "file":
            form.file_name = part.filename or "file"
            await self._store(part)
        else:
            form.fields[name] = await self._text(part)

    async def _store(self, part: BodyPartReader) -> None:
        form = self._form
        while chunk := await self._in_time(part.read_chunk(_CHUNK_BYTES)):
            form.file_bytes += len(chunk)
            if form.file_bytes > self._max_bytes:
                raise too_large(self._max_bytes)
            try:
                await asyncio.to_thread(self._content.write, chunk)
            except OSError as error:
                raise InternalError(f"an upload could not be written: {error}") from error

    async def _text(self, part: BodyPartReader) -> str:
        text = b""
        while chunk := await self._in_time(part.read_chunk(_CHUNK_BYTES)):
            text += chunk
            if len(text) > _MAX_FIELD_BYTES:
                raise _malformed("A field of the form is too long.")
        return text.decode()

    async def _in_time(self, reading: Awaitable[T]) -> T:
        async with asyncio.timeout(self._wait_s):
            return await reading


_PLAIN = frozenset({"7bit", "8bit", "binary"})


def _malformed(message: str) -> Refusal:
    return http_refusal(400, "malformed_http", message, close=True)
