"""Reads server-sent events as browsers must (WHATWG HTML, section 9.2), and notes what they drop.

A browser ignores lines it does not understand and an event without an empty line after it; here
both are faults, because what they carried is lost. What the events mean is for `answers`.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass

from steelyard.lab.verify.exchange import Piece

__all__ = ["EventStream", "SseEvent", "read_events"]

_FIELDS = frozenset({b"data", b"event", b"id", b"retry"})
_LINE_END = re.compile(rb"\r\n|\n|\r(?=[^\n])")
"""A carriage return ends a line by itself, but only what follows it tells."""


@dataclass(frozen=True, slots=True)
class SseEvent:
    """One event."""

    data: str
    at_s: float
    """When its last byte arrived, since the request was sent."""


@dataclass(frozen=True, slots=True)
class EventStream:
    """A whole stream."""

    events: tuple[SseEvent, ...]
    faults: tuple[str, ...]


def read_events(pieces: Sequence[Piece]) -> EventStream:
    """Events and faults of a body that is complete."""
    reader = _Reader()
    for piece in pieces:
        reader.feed(piece.data, piece.at_s)
    reader.end()
    return EventStream(tuple(reader.events), tuple(reader.faults))


class _Reader:
    def __init__(self) -> None:
        self.events: list[SseEvent] = []
        self.faults: list[str] = []
        self._rest = b""
        self._data: list[bytes] = []
        self._is_open = False
        """True while an event has fields but no end."""

    def feed(self, data: bytes, at_s: float) -> None:
        *lines, self._rest = _LINE_END.split(self._rest + data)
        for line in lines:
            self._line(line, at_s)

    def end(self) -> None:
        if self._rest.endswith(b"\r"):
            self.feed(b"\n", 0.0)
        if self._rest:
            self.faults.append(f"the stream ends inside a line: {self._rest[-60:]!r}")
        elif self._is_open:
            self.faults.append("the last event is not ended by an empty line, so browsers drop it")

    def _line(self, line: bytes, at_s: float) -> None:
        if not line:
            self._dispatch(at_s)
            return
        name, colon, value = line.partition(b":")
        if not name and colon:
            return  # a comment, as sent to keep a connection alive
        self._is_open = True
        if name not in _FIELDS:
            self.faults.append(
                f"a line is no field of an event, so browsers drop it: {line[:60]!r}"
            )
        elif name == b"data":
            self._data.append(value.removeprefix(b" "))

    def _dispatch(self, at_s: float) -> None:
        if self._data:
            data = b"\n".join(self._data)
            try:
                text = data.decode("utf-8")
            except UnicodeDecodeError:
                self.faults.append(f"an event is not UTF-8: {data[:60]!r}")
                text = data.decode("utf-8", "replace")
            self.events.append(SseEvent(text, at_s))
        self._data = []
        self._is_open = False
