"""Server-sent events: cuts a byte stream into the payloads of its `data` fields.

Knows nothing of what is in them. Memory is bounded: an event that grows beyond the limit is the
end of the stream.
"""

from steelyard.contract.errors import EngineFailed

__all__ = ["EventCutter"]


class EventCutter:
    """Keeps an incomplete event for the next `feed`."""

    def __init__(self, max_event_bytes: int) -> None:
        self._max_event_bytes = max_event_bytes
        self._buffer = bytearray()
        self._lines: list[bytes] = []
        self._held_bytes = 0

    def feed(self, data: bytes) -> list[bytes]:
        """Payloads completed by `data`, in order. Raises `EngineFailed` on an over-long event."""
        buffer = self._buffer
        buffer += data
        payloads: list[bytes] = []
        at = 0
        while (end := buffer.find(b"\n", at)) >= 0:
            line = bytes(buffer[at:end]).rstrip(b"\r")
            at = end + 1
            if line:
                self._take(line)
            elif self._lines:
                payloads.append(b"\n".join(self._lines))
                self._lines, self._held_bytes = [], 0
        del buffer[:at]
        if len(buffer) + self._held_bytes > self._max_event_bytes:
            raise EngineFailed(f"an event of the endpoint exceeds {self._max_event_bytes} bytes")
        return payloads

    def _take(self, line: bytes) -> None:
        name, _, value = line.partition(b":")
        if name == b"data":  # comments keep the connection awake, other fields are not for us
            self._lines.append(value.removeprefix(b" "))
            self._held_bytes += len(value)
