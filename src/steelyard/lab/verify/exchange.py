"""One request and what came back, as it was, for judging and as evidence."""

import json
import re
from dataclasses import dataclass
from typing import Any

from steelyard.lab.verify.http_answer import AnswerHead

__all__ = ["Exchange", "HttpRequest", "Piece", "excerpt", "visible"]

_EXCERPT_CHARS = 700


@dataclass(frozen=True, slots=True)
class HttpRequest:
    """What to send; host, length and credentials are added by the client."""

    method: str
    path: str
    body: bytes | None = None
    """None sends no body."""
    fields: tuple[tuple[str, str], ...] = ()
    is_chunked: bool = False
    """Announce the body by Transfer-Encoding instead of Content-Length."""
    key: str | None = None
    """Bearer token instead of the target's own; empty sends none."""

    @property
    def shown(self) -> str:
        """For people: never holds credentials."""
        lines = [f"{self.method} {self.path}"]
        lines += [f"{name}: {value}" for name, value in self.fields]
        if self.body is not None:
            lines.append(excerpt(self.body.decode("utf-8", "backslashreplace")))
        return "\n".join(lines)


@dataclass(frozen=True, slots=True)
class Piece:
    """Body bytes that arrived together."""

    data: bytes
    at_s: float
    """Since the request was sent."""


@dataclass(frozen=True, slots=True)
class Exchange:
    """A request and its answer, as far as one came."""

    request: HttpRequest
    head: AnswerHead | None
    """None when the connection ended, or failed, before a header was complete."""
    pieces: tuple[Piece, ...]
    faults: tuple[str, ...]
    """Breaches of HTTP, and failures of the connection."""
    elapsed_s: float

    @property
    def status(self) -> int:
        """0 when there was no answer."""
        return self.head.status if self.head else 0

    @property
    def is_ok(self) -> bool:
        """True for 2xx."""
        return 200 <= self.status < 300

    @property
    def body(self) -> bytes:
        return b"".join(piece.data for piece in self.pieces)

    def header(self, name: str) -> str | None:
        """The first value of a header field, by its name in small letters."""
        return self.head.get(name) if self.head else None

    @property
    def content_type(self) -> str:
        """Without parameters, in small letters."""
        return (self.header("content-type") or "").partition(";")[0].strip().lower()

    def json(self) -> Any:
        """The decoded body. Raises `ValueError` when it is no JSON text in UTF-8."""
        try:
            return json.loads(self.body.decode("utf-8"))
        except RecursionError as error:
            raise ValueError("the JSON text is nested too deeply") from error

    @property
    def shown(self) -> str:
        """The answer, for people."""
        if self.head is None:
            return f"no answer: {'; '.join(self.faults)}"
        kept = ("content-type", "content-length", "transfer-encoding", "connection", "x-request-id")
        lines = [f"{self.status}"]
        lines += [f"{name}: {value}" for name, value in self.head.fields if name in kept]
        lines.append(excerpt(self.body.decode("utf-8", "backslashreplace")))
        return "\n".join(lines)


def excerpt(text: str, limit: int = _EXCERPT_CHARS) -> str:
    """Beginning and end of a long text; control characters made visible."""
    if len(text) > limit:
        half = limit // 2
        text = f"{text[:half]} … {len(text) - 2 * half} more … {text[-half:]}"
    return visible(text)


def visible(text: str) -> str:
    """Without what steers terminals or is not allowed in XML: a server chose this text."""
    return _UNPRINTABLE.sub(lambda match: f"\\x{ord(match[0]):02x}", text)


_UNPRINTABLE = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\ud800-\udfff\ufffe\uffff]")
