"""Reads HTTP/1.1 responses out of whatever pieces a socket delivers (RFC 9112).

Only what a load generator meets: a status, headers, and a body that is chunked, has a length or
ends with the connection. Nothing is decompressed, because nothing compressed is asked for. What
the body means is the business of `events`.
"""

import enum

from steelyard.contract.errors import ProtocolError

__all__ = ["ResponseReader"]

_MAX_HEAD_BYTES = 64 * 1024
_MAX_LINE_BYTES = 1024
"""Of a chunk's size line or a trailer."""
_NO_BODY = frozenset({204, 304})


class _Part(enum.Enum):
    """What the next byte belongs to."""

    HEAD = enum.auto()
    SIZED_BODY = enum.auto()
    CHUNKS = enum.auto()
    BODY_UNTIL_CLOSE = enum.auto()
    TRAILERS = enum.auto()
    NOTHING = enum.auto()


class ResponseReader:
    """One response; make a new one for the next."""

    __slots__ = ("_left", "_part", "_pending", "headers", "status")

    def __init__(self) -> None:
        self.status = 0
        """0 until the head is complete; informational responses are skipped."""
        self.headers: dict[str, str] = {}
        """Names in lower case; the last one of a name."""
        self._part = _Part.HEAD
        self._pending = b""
        self._left = 0
        """Bytes missing of a sized body, or of the chunk that has begun."""

    @property
    def is_complete(self) -> bool:
        return self._part is _Part.NOTHING

    @property
    def keeps_connection(self) -> bool:
        """Whether another request may follow; meaningful once complete."""
        is_framed = "content-length" in self.headers or self._is_chunked or self.status in _NO_BODY
        return is_framed and self.headers.get("connection", "").lower() != "close"

    def feed(self, data: bytes) -> bytes:
        """The part of the body that `data` completes.

        Raises `ProtocolError` when it is no HTTP; the connection must then be closed.
        """
        if self._part is _Part.CHUNKS and not self._pending and not self._left:
            # Nearly every read of a token stream: one whole chunk and nothing else.
            line_end = data.find(b"\r\n", 0, 10)
            if line_end > 0 and data.endswith(b"\r\n"):
                size = _chunk_size(data[:line_end])
                if size and line_end + size + 4 == len(data):
                    return data[line_end + 2 : -2]
        return self._feed_slowly(data)

    def end_of_connection(self) -> None:
        """The server closed. Raises `ProtocolError` when the response is not complete."""
        if self._part is _Part.BODY_UNTIL_CLOSE:
            self._part = _Part.NOTHING
        if not self.is_complete:
            raise ProtocolError("the connection was closed in the middle of the response")

    @property
    def _is_chunked(self) -> bool:
        return "chunked" in self.headers.get("transfer-encoding", "").lower()

    def _feed_slowly(self, data: bytes) -> bytes:
        self._pending += data
        if self._part is _Part.HEAD:
            self._read_head()
        match self._part:
            case _Part.SIZED_BODY:
                return self._read_sized()
            case _Part.CHUNKS:
                return self._read_chunks()
            case _Part.BODY_UNTIL_CLOSE:
                body, self._pending = self._pending, b""
                return body
            case _Part.TRAILERS:
                self._read_trailers()
            case _Part.NOTHING if self._pending:
                raise ProtocolError("more bytes came than the response announced")
        return b""

    def _read_head(self) -> None:
        while self._part is _Part.HEAD:
            end = self._pending.find(b"\r\n\r\n")
            if end < 0:
                if len(self._pending) > _MAX_HEAD_BYTES:
                    raise ProtocolError("the head of the response is too long")
                return
            head, self._pending = self._pending[:end], self._pending[end + 4 :]
            status_line, *lines = head.decode("latin-1").split("\r\n")
            status = _status(status_line)
            if status < 200:
                continue  # 100 Continue, 103 Early Hints: the response is still to come
            self.status = status
            for line in lines:
                name, colon, value = line.partition(":")
                if not colon:
                    raise ProtocolError(f"{line[:80]!r} is no header")
                self.headers[name.strip().lower()] = value.strip()
            self._choose_framing()

    def _choose_framing(self) -> None:
        if self.status in _NO_BODY:
            self._part = _Part.NOTHING
        elif self._is_chunked:
            self._part = _Part.CHUNKS
        elif "content-length" in self.headers:
            length = self.headers["content-length"]
            if not (length.isascii() and length.isdigit()):
                raise ProtocolError(f"{length[:80]!r} is no length")
            self._left = int(length)
            self._part = _Part.SIZED_BODY if self._left else _Part.NOTHING
        else:
            self._part = _Part.BODY_UNTIL_CLOSE

    def _read_sized(self) -> bytes:
        body, self._pending = self._pending[: self._left], self._pending[self._left :]
        self._left -= len(body)
        if not self._left:
            self._part = _Part.NOTHING
        return body

    def _read_chunks(self) -> bytes:
        pieces = []
        data, at = self._pending, 0
        while True:
            if self._left:
                # The two bytes after a chunk count as part of it, so that they are never cut off.
                piece = data[at : at + self._left]
                at += len(piece)
                self._left -= len(piece)
                pieces.append(piece[: len(piece) - max(2 - self._left, 0)])
                if self._left:
                    break
                continue
            line_end = data.find(b"\r\n", at)
            if line_end < 0:
                if len(data) - at > _MAX_LINE_BYTES:
                    raise ProtocolError("the size of a chunk is too long")
                break
            size = _chunk_size(data[at:line_end])
            at = line_end + 2
            if not size:
                self._part = _Part.TRAILERS
                break
            self._left = size + 2
        self._pending = data[at:]
        if self._part is _Part.TRAILERS:
            self._read_trailers()
        return b"".join(pieces)

    def _read_trailers(self) -> None:
        while (end := self._pending.find(b"\r\n")) >= 0:
            self._pending = self._pending[end + 2 :]
            if end == 0:
                self._part = _Part.NOTHING
                return
        if len(self._pending) > _MAX_LINE_BYTES:
            raise ProtocolError("a trailer is too long")


def _status(line: str) -> int:
    version, _, rest = line.partition(" ")
    code = rest[:3]
    if not version.startswith("HTTP/1.") or not (code.isascii() and code.isdigit()):
        raise ProtocolError(f"{line[:80]!r} is no HTTP/1.1 response")
    return int(code)


def _chunk_size(line: bytes) -> int:
    digits = line.partition(b";")[0].strip()
    if not digits or digits.strip(b"0123456789abcdefABCDEF"):
        raise ProtocolError(f"{line[:80]!r} is no size of a chunk")
    return int(digits, 16)
