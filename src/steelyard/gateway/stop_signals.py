"""SIGTERM, Ctrl-C and a closed terminal as events: the first asks for an orderly end, the next for
a quick one. SIGHUP from anybody but a closing terminal can mean something else: read the settings
again.

What an end means is decided by who waits: `gateway.app.serve` for a door alone, `cli.service` for
a whole service.
"""

import asyncio
import os
import signal
from collections.abc import Callable
from types import TracebackType

__all__ = ["StopSignals"]

_HANGUP_S = 0.1

_SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)


class StopSignals:
    """A context inside which signals set events instead of ending the process.

    A signal that is ignored stays so: `nohup` and a script's `&` mean it. Enter it in the main
    thread, inside a running loop; at the end, what was in force before is in force again.
    """

    def __init__(self, on_hangup: Callable[[], None] | None = None) -> None:
        """`on_hangup` hears of SIGHUP as long as the terminal, if there was one, is still there;
        None: it always asks for the end."""
        self._on_hangup = on_hangup
        self._had_terminal = _has_terminal()
        self.first = asyncio.Event()
        self.second = asyncio.Event()
        self._loop = asyncio.get_running_loop()
        self._before = {
            number: handler
            for number in _SIGNALS
            if (handler := signal.getsignal(number)) is not signal.SIG_IGN
        }

    def __enter__(self) -> "StopSignals":
        for number in self._before:
            is_hangup = number == signal.SIGHUP and self._on_hangup is not None
            self._loop.add_signal_handler(number, self._wait_and_see if is_hangup else self._ring)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        for number, handler in self._before.items():
            self._loop.remove_signal_handler(number)
            signal.signal(number, signal.SIG_DFL if handler is None else handler)

    def _ring(self) -> None:
        (self.second if self.first.is_set() else self.first).set()

    def _wait_and_see(self) -> None:
        # The signal may be here before the kernel has taken the terminal away.
        self._loop.call_later(_HANGUP_S, self._hang_up)

    def _hang_up(self) -> None:
        if self._had_terminal and not _has_terminal():
            self._ring()
        elif self._on_hangup is not None:
            self._on_hangup()


def _has_terminal() -> bool:
    """True while this process has a terminal that it can be stopped from."""
    try:
        os.close(os.open("/dev/tty", os.O_RDWR | os.O_NOCTTY))
    except OSError:
        return False
    return True
