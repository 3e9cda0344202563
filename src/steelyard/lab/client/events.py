"""Cuts a body into server-sent events (WHATWG HTML, "Server-sent events").

Gives the data of each event; comments and other fields are left out, except that `error: …`, which
llama.cpp's server sends as a field of its own, becomes an event like those of all other servers.
"""

import re

from steelyard.contract.errors import ProtocolError

__all__ = ["EventSplitter"]

_MAX_EVENT_BYTES = 8 * 1024 * 1024
_LINE_END = re.compile(rb"\r\n|\n|\r(?!\Z)")
"""A carriage return at the very end may be the first half of a line end."""


class EventSplitter:
    """Splits one stream; keeps what is incomplete for the next `feed`."""

    __slots__ = ("_data", "_pending", "comments")

    def __init__(self) -> None:
        self.comments = 0
        """Comment lines so far: keep-alives."""
        self._pending = b""
        self._data: list[bytes] = []

    def feed(self, body: bytes) -> list[bytes]:
        """The data of the events that `body` completes.

        Raises `ProtocolError` when an event is too long to be one.
        """
        if not self._pending and not self._data and body.startswith(b"data: "):
            # Nearly every read of a token stream: one whole event of one line.
            line_end = body.find(b"\n")
            if line_end == len(body) - 2 and body[-1] == 10 and body[line_end - 1] != 13:
                return [body[6:line_end]]
        return self._feed_slowly(body)

    def _feed_slowly(self, body: bytes) -> list[bytes]:
        *lines, self._pending = _LINE_END.split(self._pending + body)
        if len(self._pending) > _MAX_EVENT_BYTES:
            raise ProtocolError("an event is too long")
        events = []
        for line in lines:
            if not line:
                if self._data:
                    events.append(b"\n".join(self._data))
                    self._data = []
                continue
            field, _, value = line.partition(b":")
            value = value.removeprefix(b" ")
            if not field:
                self.comments += 1
            elif field == b"data":
                self._data.append(value)
            elif field == b"error":
                self._data.append(b'{"error":%b}' % value)
        return events
