"""The engine's side of the wire: one thread, no blocking, any number of clients.

    kernel → recv → FrameDecoder → poll() → the loop → send() → frame → kernel
                                                            ↳ unsent bytes, bounded

A client can hurt nobody but itself: one that sends garbage, or does not read what it is sent, is
cut off. What a closed connection means for its requests is decided by `engine.loop`.
"""

import enum
import functools
import logging
import selectors
import socket
import time
from collections.abc import Callable
from dataclasses import dataclass

from steelyard.contract.codec import FrameDecoder, command_decoder, encode_frame
from steelyard.contract.errors import ProtocolError
from steelyard.contract.wire import Command, Event
from steelyard.engine.listener import Listener

__all__ = ["WAKEUP", "Happening", "Notice", "Transport", "TransportLimits"]

_log = logging.getLogger(__name__)

_RECEIVE_BYTES = 256 * 1024

WAKEUP = 0
"""The connection id of `Notice.WOKEN`; real connections count from 1 and never repeat."""


class Notice(enum.Enum):
    """What happens to a connection besides commands."""

    OPENED = "opened"
    CLOSED = "closed"
    """The peer is gone or was cut off; nothing can be sent to it any more."""
    WOKEN = "woken"
    """The wake-up socket was written to: a signal arrived or another thread wants attention."""


Happening = tuple[int, Command | Notice]
"""A connection's id and what came over it; in order for each connection."""


@dataclass(frozen=True, slots=True)
class TransportLimits:
    """Bounds on what clients can make the engine hold."""

    connections: int = 256
    """One more is accepted and closed at once. Every worker of every gateway has one."""
    unsent_bytes: int = 4 * 1024 * 1024
    """Per connection, beyond the kernel's own buffer: minutes of tokens for a client that reads."""


class Transport:
    """Accepts connections on `listener`, which it owns from now on, and speaks `contract.wire`.

    Not thread-safe: one thread at a time may use it. `wakeup`, when given, is a socket that any
    thread or signal may write to; it ends a waiting `poll`.
    """

    def __init__(
        self,
        listener: Listener,
        *,
        wakeup: socket.socket | None = None,
        limits: TransportLimits | None = None,
    ) -> None:
        self._listener = listener
        self._limits = limits or TransportLimits()
        self._connections: dict[int, _Connection] = {}
        self._last_id = WAKEUP
        self._happenings: list[Happening] = []
        self._selector = selectors.DefaultSelector()
        self._selector.register(listener.socket, selectors.EVENT_READ, self._accept)
        if wakeup is not None:
            on_wake = functools.partial(self._drain_wakeup, wakeup)
            self._selector.register(wakeup, selectors.EVENT_READ, on_wake)

    @property
    def connection_ids(self) -> list[int]:
        """Clients connected now."""
        return list(self._connections)

    def poll(self, timeout_s: float | None) -> list[Happening]:
        """What happened since the last call; waits up to `timeout_s` (None: for ever) for it."""
        if self._happenings:
            timeout_s = 0.0
        for key, mask in self._selector.select(timeout_s):
            react: Callable[[int], None] = key.data
            react(mask)
        happenings, self._happenings = self._happenings, []
        return happenings

    def send(self, connection_id: int, event: Event) -> None:
        """Send or queue `event`; never waits. A connection that is gone is ignored."""
        connection = self._connections.get(connection_id)
        if connection is None:
            return
        frame = encode_frame(event)
        if connection.unsent:
            connection.unsent += frame
        else:
            self._transmit(connection, frame)
        if len(connection.unsent) > self._limits.unsent_bytes:
            self._cut(connection, "it does not read what it is sent")

    def close(self, flush_s: float = 0.0) -> None:
        """Send what is queued for up to `flush_s`, then close everything. Safe to repeat."""
        deadline_s = time.monotonic() + flush_s
        while any(connection.unsent for connection in self._connections.values()):
            remaining_s = deadline_s - time.monotonic()
            if remaining_s <= 0:
                break
            self.poll(remaining_s)
        for connection in self._connections.values():
            connection.socket.close()
        self._connections.clear()
        self._selector.close()
        self._listener.close()

    def _accept(self, _mask: int) -> None:
        try:
            accepted, _ = self._listener.socket.accept()
        except OSError as error:
            # Mostly a peer that left before we came; out of descriptors needs the log line.
            _log.warning("a connection could not be accepted: %s", error)
            return
        if len(self._connections) >= self._limits.connections:
            _log.warning("refused a client: %d are connected already", len(self._connections))
            accepted.close()
            return
        accepted.setblocking(False)
        if accepted.family != socket.AF_UNIX:
            accepted.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._last_id += 1
        connection = _Connection(self._last_id, accepted)
        self._connections[connection.id] = connection
        react = functools.partial(self._attend, connection)
        self._selector.register(accepted, selectors.EVENT_READ, react)
        connection.react = react
        self._happenings.append((connection.id, Notice.OPENED))

    def _attend(self, connection: "_Connection", mask: int) -> None:
        if mask & selectors.EVENT_WRITE:
            self._transmit(connection, b"")
        if mask & selectors.EVENT_READ and connection.id in self._connections:
            self._receive(connection)

    def _receive(self, connection: "_Connection") -> None:
        try:
            data = connection.socket.recv(_RECEIVE_BYTES)
        except (BlockingIOError, InterruptedError):
            return
        except OSError as error:
            self._cut(connection, error.strerror or str(error))
            return
        if not data:
            self._drop(connection)
            return
        try:
            commands = connection.decoder.feed(data)
        except ProtocolError as error:
            self._cut(connection, error.message)
            return
        self._happenings.extend((connection.id, command) for command in commands)

    def _transmit(self, connection: "_Connection", frame: bytes) -> None:
        """Hand `unsent` and then `frame` to the kernel, as far as it takes them."""
        unsent = connection.unsent
        unsent += frame
        try:
            sent = connection.socket.send(unsent)
        except (BlockingIOError, InterruptedError):
            sent = 0
        except OSError:
            # Gone in the middle of an answer: an everyday event, the notice says enough.
            self._drop(connection)
            return
        del unsent[:sent]
        self._watch_writable(connection, bool(unsent))

    def _watch_writable(self, connection: "_Connection", wanted: bool) -> None:
        if wanted == connection.is_watched_for_writing:
            return
        connection.is_watched_for_writing = wanted
        events = selectors.EVENT_READ | (selectors.EVENT_WRITE if wanted else 0)
        self._selector.modify(connection.socket, events, connection.react)

    def _drain_wakeup(self, wakeup: socket.socket, _mask: int) -> None:
        wakeup.recv(4096)
        self._happenings.append((WAKEUP, Notice.WOKEN))

    def _cut(self, connection: "_Connection", reason: str) -> None:
        _log.warning("closed the connection of client %d: %s", connection.id, reason)
        self._drop(connection)

    def _drop(self, connection: "_Connection") -> None:
        self._selector.unregister(connection.socket)
        connection.socket.close()
        connection.unsent.clear()
        del self._connections[connection.id]
        self._happenings.append((connection.id, Notice.CLOSED))


class _Connection:
    """One client: its socket, the unfinished part of what it sends, and what it has yet to read."""

    __slots__ = ("decoder", "id", "is_watched_for_writing", "react", "socket", "unsent")

    def __init__(self, connection_id: int, connected: socket.socket) -> None:
        self.id = connection_id
        self.socket = connected
        self.decoder: FrameDecoder[Command] = command_decoder()
        self.unsent = bytearray()
        self.is_watched_for_writing = False
        self.react: Callable[[int], None] | None = None
