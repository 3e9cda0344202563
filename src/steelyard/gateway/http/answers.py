"""An answer as data, and the bytes of its head.

Written by hand instead of through aiohttp's response classes because the head is a fifth of what
a small request costs there. Who sends it, and whether the connection lives on, is `exchange`'s.
"""

import re
import time
from dataclasses import dataclass
from email.utils import formatdate
from http import HTTPStatus
from typing import Any

import msgspec

__all__ = ["Answer", "Headers", "json_answer", "render_head"]

Headers = tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True)
class Answer:
    """A complete answer. Header values must be safe: no control characters."""

    body: bytes = b""
    status: int = 200
    content_type: str = "application/json"
    headers: Headers = ()
    """Besides content type, length, date, connection and request id."""
    close: bool = False
    """Close the connection afterwards."""


def json_answer(value: Any, status: int = 200) -> Answer:
    """`value` (anything msgspec encodes) as JSON."""
    return Answer(_ENCODER.encode(value), status)


def render_head(
    status: int,
    content_type: str,
    headers: Headers,
    *,
    length: int | None,
    is_chunked: bool = False,
    close: bool,
    is_http_10: bool = False,
) -> bytes:
    """Status line and header fields, the empty line included.

    `length` None: there is no body, or its end is marked by chunks or by closing.
    """
    parts = [_status_line(status), "\r\ndate: ", _http_date()]
    if content_type:
        parts += ("\r\ncontent-type: ", content_type)
    if length is not None:
        parts += ("\r\ncontent-length: ", str(length))
    elif is_chunked:
        parts.append("\r\ntransfer-encoding: chunked")
    for name, value in headers:
        assert _UNSAFE.search(value) is None, f"unsafe value of the header {name}"
        parts += ("\r\n", name, ": ", value)
    if close:
        parts.append("\r\nconnection: close\r\n\r\n")
    elif is_http_10:
        parts.append("\r\nconnection: keep-alive\r\n\r\n")
    else:
        parts.append("\r\n\r\n")
    return "".join(parts).encode("latin-1")


def _status_line(status: int) -> str:
    line = _STATUS_LINES.get(status)
    return line if line is not None else f"HTTP/1.1 {status} Unknown"


def _http_date() -> str:
    global _date, _date_second
    second = int(time.time())
    if second != _date_second:
        _date, _date_second = formatdate(second, usegmt=True), second
    return _date


_ENCODER = msgspec.json.Encoder()
_UNSAFE = re.compile(r"[^\x20-\x7e\x80-\xff]")
_STATUS_LINES = {s.value: f"HTTP/1.1 {s.value} {s.phrase}" for s in HTTPStatus} | {
    499: "HTTP/1.1 499 Client Closed Request"
}
# Formatting the date costs more than the rest of the head; it changes once a second.
_date, _date_second = "", -1
