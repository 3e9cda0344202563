"""An answer as server-sent events, written straight to the transport.

One call of `write` is one chunk of the HTTP body, holding one or more whole events. The head goes
out with the first of them, so that errors before it still have a status of their own. What the
events say is the caller's business.
"""

from steelyard.gateway.http.connection import Connection

__all__ = ["EventStream"]


class EventStream:
    """The body of one streaming answer.

    `write` never waits; whoever writes a lot awaits `drain` in between. Both raise
    `ClientGone` once there is nobody to write to.
    """

    __slots__ = ("_connection", "_head", "_is_chunked", "has_ended")

    def __init__(self, connection: Connection, head: bytes, *, is_chunked: bool) -> None:
        self._connection = connection
        self._head = head
        self._is_chunked = is_chunked
        self.has_ended = False

    @property
    def has_begun(self) -> bool:
        """True once the status is on its way and cannot be changed any more."""
        return not self._head

    @property
    def is_behind(self) -> bool:
        """True while the client has not taken most of what was written."""
        return self._connection.writing_paused

    def write(self, events: bytes) -> None:
        """Send whole events; empty is allowed and sends the head alone."""
        if self._is_chunked and events:
            events = b"%x\r\n%b\r\n" % (len(events), events)
        if self._head:
            events = self._head + events
            self._head = b""
        self._connection.write(events)

    async def drain(self) -> None:
        """Wait while the client is behind."""
        await self._connection.drain()

    def end(self, events: bytes = b"") -> None:
        """Send the last events and the end of the body. A second call does nothing."""
        if self.has_ended:
            return
        self.has_ended = True
        if not self._is_chunked:
            self.write(events)
        elif events:
            self._connection.write(b"%b%x\r\n%b\r\n0\r\n\r\n" % (self._head, len(events), events))
        else:
            self._connection.write(self._head + b"0\r\n\r\n")
        self._head = b""
