"""Bytes of HTTP answers: heads, bodies, errors in OpenAI's shape.

Knows no tokens; `rendering` writes what generations say.
"""

from http import HTTPStatus

import msgspec

__all__ = ["Refusal", "render_answer", "render_stream_head"]


class Refusal(Exception):
    """A request that gets an error instead of an answer."""

    def __init__(
        self,
        status: int,
        message: str,
        *,
        code: str = "invalid_value",
        param: str | None = None,
        headers: str = "",
    ) -> None:
        super().__init__(message)
        self.status = status
        self.headers = headers
        """Further header lines, each ended by CR LF."""
        kind = _KINDS.get(status, "invalid_request_error" if status < 500 else "server_error")
        error = {"message": message, "type": kind, "param": param, "code": code}
        self.body = msgspec.json.encode({"error": error})


_KINDS = {404: "not_found_error", 429: "rate_limit_error"}


def render_answer(
    status: int,
    body: bytes,
    *,
    content_type: str | None = "application/json",
    headers: str = "",
    close: bool = False,
) -> bytes:
    """A complete answer; a `content_type` of None sends no such header."""
    kind = "" if content_type is None else f"content-type: {content_type}\r\n"
    lines = (
        f"HTTP/1.1 {status} {_phrase(status)}\r\n{kind}content-length: {len(body)}\r\n"
        f"{headers}{_CLOSE if close else ''}\r\n"
    )
    return lines.encode("latin-1") + body


def render_stream_head(headers: str, *, close: bool) -> bytes:
    """The head of an event stream in HTTP chunks."""
    lines = (
        "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream; charset=utf-8\r\n"
        f"cache-control: no-cache\r\ntransfer-encoding: chunked\r\n{headers}"
        f"{_CLOSE if close else ''}\r\n"
    )
    return lines.encode("latin-1")


_CLOSE = "connection: close\r\n"


def _phrase(status: int) -> str:
    try:
        return HTTPStatus(status).phrase
    except ValueError:
        return "Unknown"
