"""Reads one streamed HTTP answer after another from a connection's bytes, at little cost.

While an answer streams, bytes are only cut into events and stamped with the time at which the
socket was read; what the events say is decoded when nobody is being timed (`answers`). Knows the
HTTP that servers really send: chunked bodies and bodies with a length, nothing else.
"""

from dataclasses import dataclass, field

__all__ = ["Event", "MalformedAnswer", "StreamReader", "StreamedAnswer"]

Event = tuple[int, bytes]
"""When the bytes that completed it were read (ns, monotonic), and what follows `data: `."""

_EVENT_ENDS = (b"\n\n", b"\r\n\r\n")
_LINE_END = 2
"""Bytes of the line end behind each chunk's data."""


class MalformedAnswer(Exception):
    """The server sent what is no HTTP answer that we can read."""


@dataclass(slots=True)
class StreamedAnswer:
    """One answer; a server that refuses sends no events but a `body`."""

    status: int = 0
    head_ns: int = 0
    """When the head was complete."""
    end_ns: int = 0
    """When the last byte was read."""
    events: list[Event] = field(default_factory=list)
    body: bytes = b""
    """What was no event: an error's JSON."""


class StreamReader:
    """Feed it what a connection receives; it returns an answer when one is complete."""

    def __init__(self) -> None:
        self._begin()

    def _begin(self) -> None:
        self._answer = StreamedAnswer()
        self._raw = bytearray()
        """Bytes of the head, or of a chunk's header, that are not understood yet."""
        self._text = bytearray()
        """Body bytes behind the last complete event."""
        self._in_head = True
        self._is_chunked = False
        self._is_last_chunk = False
        self._left = 0
        """Bytes of the body, or of the current chunk with its line end, still to come."""

    def feed(self, data: bytes, now_ns: int) -> StreamedAnswer | None:
        """The answer that `data` completes, else None. Answers do not overlap on a connection."""
        raw = self._raw
        raw += data
        if self._in_head and not self._read_head(now_ns):
            return None
        if not (self._read_chunks(now_ns) if self._is_chunked else self._read_plain(now_ns)):
            return None
        answer = self._answer
        answer.end_ns = now_ns
        answer.body = bytes(self._text)
        self._begin()
        return answer

    def _read_head(self, now_ns: int) -> bool:
        end = self._raw.find(b"\r\n\r\n")
        if end < 0:
            return False
        lines = bytes(self._raw[:end]).split(b"\r\n")
        del self._raw[: end + 4]
        try:
            self._answer.status = int(lines[0].split(b" ", 2)[1])
        except (IndexError, ValueError):
            raise MalformedAnswer(f"no status in {lines[0][:80]!r}") from None
        headers = {}
        for line in lines[1:]:
            name, _, value = line.partition(b":")
            headers[name.strip().lower()] = value.strip().lower()
        self._is_chunked = b"chunked" in headers.get(b"transfer-encoding", b"")
        self._left = 0 if self._is_chunked else int(headers.get(b"content-length", b"0"))
        self._answer.head_ns = now_ns
        self._in_head = False
        return True

    def _read_plain(self, now_ns: int) -> bool:
        part = bytes(self._raw[: self._left])
        del self._raw[: self._left]
        self._left -= len(part)
        self._take(part, now_ns)
        return self._left == 0

    def _read_chunks(self, now_ns: int) -> bool:
        """True once the last chunk, and the empty line behind it, are there."""
        raw = self._raw
        while raw:
            if self._left == 0 and not self._open_chunk():
                return False
            part = bytes(raw[: self._left])
            del raw[: self._left]
            self._take(part[: max(0, self._left - _LINE_END)], now_ns)
            self._left -= len(part)
            if self._left == 0 and self._is_last_chunk:
                return True
        return False

    def _open_chunk(self) -> bool:
        end = self._raw.find(b"\r\n")
        if end < 0:
            return False
        try:
            size = int(self._raw[:end].split(b";")[0], 16)
        except ValueError:
            raise MalformedAnswer(f"no chunk size in {bytes(self._raw[:80])!r}") from None
        del self._raw[: end + 2]
        self._left = size + _LINE_END
        self._is_last_chunk = size == 0
        return True

    def _take(self, part: bytes, now_ns: int) -> None:
        """Cut complete events out of the body."""
        text = self._text
        text += part
        while (found := _first_end(text)) is not None:
            at, length = found
            block = bytes(text[:at])
            del text[: at + length]
            if block.startswith(b"data:"):
                self._answer.events.append((now_ns, block[5:].strip()))


def _first_end(text: bytearray) -> tuple[int, int] | None:
    """Where the first event ends, and how long its end is."""
    ends = [(at, len(mark)) for mark in _EVENT_ENDS if (at := text.find(mark)) >= 0]
    return min(ends) if ends else None
