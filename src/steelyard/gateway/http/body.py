"""Reads a request's body, refusing what must not be read before reading it.

Content type, encoding, expectations, size and pace; not the JSON in it, which is `gateway.api`'s.
"""

import asyncio

from aiohttp import web
from aiohttp.web_protocol import RequestPayloadError

from steelyard.gateway.config import HttpLimits
from steelyard.gateway.errors import Refusal, http_refusal
from steelyard.gateway.http.connection import Connection, IncompleteBody

__all__ = ["check_header", "read_body", "too_large"]


async def read_body(request: web.BaseRequest, connection: Connection, limits: HttpLimits) -> bytes:
    """The whole body. Raises `Refusal` (400, 408, 411, 413, 415, 417)."""
    check_header(request, "application/json", limits.max_body_bytes)
    stream = request.content
    try:
        if stream.is_eof():  # it came with the header, as small bodies do
            body = stream.read_nowait()
        else:
            body = await _receive(request, connection, limits)
    except IncompleteBody:
        raise http_refusal(
            400, "incomplete_request", "The body ends before its announced length.", close=True
        ) from None
    except RequestPayloadError:
        stream.feed_eof()  # nothing can follow; aiohttp must not wait for it
        raise http_refusal(
            400, "malformed_http", "The body's chunked encoding is broken.", close=True
        ) from None
    if len(body) > limits.max_body_bytes:
        raise too_large(limits.max_body_bytes)
    return body


def check_header(request: web.BaseRequest, expected_type: str, max_bytes: int) -> None:
    """Refuse what the header alone shows to be wrong. Raises `Refusal`."""
    headers = request.headers
    # A browser sends JSON to other origins only after asking (CORS); other types it just sends.
    content_type = headers.get("Content-Type", "")
    media_type = content_type.partition(";")[0].strip().lower()
    if media_type != expected_type:
        got = (
            f"not {media_type!r}" if media_type.isprintable() and media_type else "which is missing"
        )
        raise http_refusal(
            415, "unsupported_media_type", f"Content-Type must be {expected_type}, {got[:80]}."
        )
    if headers.get("Content-Encoding", "identity").lower() != "identity":
        raise http_refusal(
            415, "unsupported_encoding", "Compressed bodies are not accepted.", close=True
        )
    length = headers.get("Content-Length")
    if length is None and "Transfer-Encoding" not in headers:
        raise http_refusal(411, "length_required", "The request has no body: send Content-Length.")
    if length is not None and int(length) > max_bytes:
        raise too_large(max_bytes)
    expectation = headers.get("Expect")
    if expectation is not None and expectation.lower() != "100-continue":
        raise http_refusal(417, "expectation_failed", "Only Expect: 100-continue is understood.")


async def _receive(request: web.BaseRequest, connection: Connection, limits: HttpLimits) -> bytes:
    if "Expect" in request.headers:
        connection.write(b"HTTP/1.1 100 Continue\r\n\r\n")
    parts: list[bytes] = []
    size = 0
    try:
        async with asyncio.timeout(limits.body_timeout_s):
            while part := await request.content.readany():
                size += len(part)
                if size > limits.max_body_bytes:
                    raise too_large(limits.max_body_bytes)
                parts.append(part)
    except TimeoutError:
        connection.close_reason = "body_timeout"
        raise http_refusal(
            408, "request_timeout", "The body took too long to arrive.", close=True
        ) from None
    return b"".join(parts)


def too_large(max_bytes: int) -> Refusal:
    """Of a body, or of a file in one."""
    return http_refusal(
        413,
        "payload_too_large",
        f"The body is larger than {max_bytes} bytes, the limit of this server.",
        close=True,
    )
