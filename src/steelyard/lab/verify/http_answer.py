"""Reads HTTP/1.1 answers byte by byte, forgiving nothing: sans-IO, after RFC 9112.

HTTP libraries repair what they receive: they drop bytes after the end, swallow a second
Content-Length, take a cut body for a whole one. A verification must see exactly that, so every
breach becomes a fault of the answer. Sockets are in `http_client`.
"""

import enum
import re
from dataclasses import dataclass

__all__ = ["AnswerHead", "AnswerParser"]

_STATUS_LINE = re.compile(rb"HTTP/1\.([01]) ([1-5][0-9]{2}) ?([^\r\n]*)")
_FIELD = re.compile(rb"([!#$%&'*+.^_`|~0-9A-Za-z-]+):[ \t]*(.*?)[ \t]*")
_CHUNK_SIZE = re.compile(rb"([0-9A-Fa-f]{1,16})[ \t]*(;.*)?")
_MAX_HEAD_BYTES = 64 * 1024
_MAX_BODY_BYTES = 256 * 1024**2
_NO_BODY = frozenset({204, 304})


@dataclass(frozen=True, slots=True)
class AnswerHead:
    """Status line and header fields."""

    status: int
    is_http_1_1: bool
    fields: tuple[tuple[str, str], ...]
    """Names in small letters, in the order of arrival."""

    def all(self, name: str) -> list[str]:
        """Every value of `name`."""
        return [value for key, value in self.fields if key == name]

    def get(self, name: str) -> str | None:
        """The first value of `name`."""
        return next(iter(self.all(name)), None)

    @property
    def keeps_alive(self) -> bool:
        """True when the server promises to take another request on this connection."""
        options = {word.strip().lower() for v in self.all("connection") for word in v.split(",")}
        return "keep-alive" in options if not self.is_http_1_1 else "close" not in options


class _State(enum.Enum):
    HEAD = enum.auto()
    LENGTH = enum.auto()
    CHUNK_SIZE = enum.auto()
    CHUNK_DATA = enum.auto()
    TRAILERS = enum.auto()
    UNTIL_CLOSE = enum.auto()
    DONE = enum.auto()


class AnswerParser:
    """One answer. `feed` what arrives, `end` when the connection closes; both return body bytes.

    Once a fault makes the rest meaningless, the answer counts as over.
    """

    def __init__(self, *, is_answer_to_head: bool = False) -> None:
        self.head: AnswerHead | None = None
        self.faults: list[str] = []
        """Breaches of HTTP, in words."""
        self._state = _State.HEAD
        self._data = bytearray()
        self._left = 0
        """Bytes of the body, or of the chunk and its line end, that are still to come."""
        self._body_bytes = 0
        self._has_no_body = is_answer_to_head

    @property
    def is_done(self) -> bool:
        return self._state is _State.DONE

    def feed(self, data: bytes) -> bytes:
        """Take bytes off the socket; the body bytes that became known with them."""
        self._data += data
        body = bytearray()
        while self._step(body):
            pass
        self._body_bytes += len(body)
        if self._body_bytes > _MAX_BODY_BYTES:
            self._break(f"the body is longer than {_MAX_BODY_BYTES} bytes")
        return bytes(body)

    @property
    def rest(self) -> bytes:
        """Bytes after the answer's end; empty before it."""
        return bytes(self._data) if self.is_done else b""

    def end(self) -> None:
        """The server closed the connection."""
        if self._state is _State.UNTIL_CLOSE:
            self._state = _State.DONE
        elif not self.is_done:
            where = "header" if self._state is _State.HEAD else "body"
            self._break(f"the connection was closed before the {where}'s end")

    def _step(self, body: bytearray) -> bool:
        """Go on with what is there; False when more bytes are needed or none are wanted."""
        match self._state:
            case _State.HEAD:
                return self._read_head()
            case _State.LENGTH | _State.UNTIL_CLOSE:
                return self._read_plain(body)
            case _State.CHUNK_SIZE:
                return self._read_chunk_size()
            case _State.CHUNK_DATA:
                return self._read_chunk(body)
            case _State.TRAILERS:
                return self._read_trailer()
            case _State.DONE:
                return False

    def _read_head(self) -> bool:
        end = self._data.find(b"\r\n\r\n")
        if end < 0:
            if len(self._data) > _MAX_HEAD_BYTES:
                self._break("the header is longer than 64 KiB")
            return False
        first, *lines = bytes(self._data[:end]).split(b"\r\n")
        del self._data[: end + 4]
        status = _STATUS_LINE.fullmatch(first)
        if status is None:
            return self._break(f"the status line is malformed: {first[:80]!r}")
        fields: list[tuple[str, str]] = []
        for line in lines:
            field = _FIELD.fullmatch(line)
            if field is None:
                return self._break(f"a header line is malformed: {line[:80]!r}")
            fields.append((field[1].decode("ascii").lower(), field[2].decode("latin-1")))
        code = int(status[2])
        if 100 <= code < 200:
            return True  # an interim answer; the real one follows
        self.head = AnswerHead(code, status[1] == b"1", tuple(fields))
        return self._begin_body(self.head)

    def _begin_body(self, head: AnswerHead) -> bool:
        lengths = head.all("content-length")
        codings = head.all("transfer-encoding")
        if len(set(lengths)) > 1:
            return self._break(f"Content-Length is given {len(lengths)} times: {lengths}")
        if lengths and codings:
            return self._break("Content-Length and Transfer-Encoding are both given")
        if lengths and not (lengths[0].isascii() and lengths[0].isdigit()):
            return self._break(f"Content-Length is no number: {lengths[0][:40]!r}")
        if self._has_no_body or head.status in _NO_BODY:
            self._state = _State.DONE
        elif codings:
            if [coding.lower() for coding in codings] != ["chunked"]:
                return self._break(f"Transfer-Encoding is {', '.join(codings)}, not chunked")
            self._state = _State.CHUNK_SIZE
        elif lengths:
            self._left = int(lengths[0])
            self._state = _State.LENGTH if self._left else _State.DONE
        else:
            self._state = _State.UNTIL_CLOSE
        return True

    def _read_plain(self, body: bytearray) -> bool:
        if self._state is _State.UNTIL_CLOSE:
            body += self._data
            self._data.clear()
            return False
        part = self._data[: self._left]
        body += part
        del self._data[: len(part)]
        self._left -= len(part)
        if self._left == 0:
            self._state = _State.DONE
        return False

    def _read_chunk_size(self) -> bool:
        line = self._line()
        if line is None:
            return False
        size = _CHUNK_SIZE.fullmatch(line)
        if size is None:
            return self._break(f"a chunk's size is no hexadecimal number: {line[:40]!r}")
        self._left = int(size[1], 16)
        self._state = _State.CHUNK_DATA if self._left else _State.TRAILERS
        return True

    def _read_chunk(self, body: bytearray) -> bool:
        part = self._data[: self._left]
        body += part
        del self._data[: len(part)]
        self._left -= len(part)
        if self._left or len(self._data) < 2:
            return False
        if self._data[:2] != b"\r\n":
            return self._break(f"a chunk does not end where it said: {bytes(self._data[:20])!r}")
        del self._data[:2]
        self._state = _State.CHUNK_SIZE
        return True

    def _read_trailer(self) -> bool:
        line = self._line()
        if line is None:
            return False
        if not line:
            self._state = _State.DONE
        return True

    def _line(self) -> bytes | None:
        """The next line without its end; None while it is incomplete."""
        end = self._data.find(b"\r\n")
        if end < 0:
            if len(self._data) > _MAX_HEAD_BYTES:
                self._break("a line of the body's framing is longer than 64 KiB")
            return None
        line = bytes(self._data[:end])
        del self._data[: end + 2]
        return line

    def _break(self, fault: str) -> bool:
        self.faults.append(fault)
        self._state = _State.DONE
        self._data.clear()
        return False
