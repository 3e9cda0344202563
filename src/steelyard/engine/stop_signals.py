"""SIGTERM (and Ctrl-C) as a flag, a wake-up and, while loading, an exception.

A Python signal handler runs only when the main thread is back from C code, which while a model
loads can take long. So the signal also reaches a socket at once, which another thread watches.

An engine with a parent ignores SIGINT: Ctrl-C in a terminal reaches every process in the
foreground, and what it means (one press: drain, two: now) is for the parent to decide. An engine
started by hand has nobody else to decide, and takes it like SIGTERM.
"""

import contextlib
import signal
import socket
import types
from collections.abc import Iterator

__all__ = ["LoadInterrupted", "StopSignals"]


class LoadInterrupted(BaseException):
    """Unwinds the main thread out of a load. No `Exception`: nothing on the way may swallow it."""


class StopSignals:
    """Whether this process was asked to stop. Make one, in the main thread."""

    def __init__(self, *, has_parent: bool) -> None:
        self.is_requested = False
        self._is_interruptible = False
        self.wakeup, self._writer = socket.socketpair()
        self.wakeup.setblocking(False)
        self._writer.setblocking(False)
        signal.set_wakeup_fd(self._writer.fileno(), warn_on_full_buffer=False)
        signal.signal(signal.SIGTERM, self._on_signal)
        signal.signal(signal.SIGINT, signal.SIG_IGN if has_parent else self._on_signal)

    def wake(self) -> None:
        """Make `wakeup` readable, from any thread."""
        with contextlib.suppress(BlockingIOError):
            self._writer.send(b"\0")

    @contextlib.contextmanager
    def interrupting(self) -> Iterator[None]:
        """Inside, a stop raises `LoadInterrupted` in the main thread; also one that came before."""
        self._is_interruptible = True
        try:
            self._raise_if_requested()
            yield
        finally:
            self._is_interruptible = False

    def _on_signal(self, _number: int, _frame: types.FrameType | None) -> None:
        self.is_requested = True
        if self._is_interruptible:
            self._raise_if_requested()

    def _raise_if_requested(self) -> None:
        if self.is_requested:
            # Once: a second signal must not break the cleaning up after the first.
            self._is_interruptible = False
            raise LoadInterrupted
