"""SIGTERM, Ctrl-C and a closed terminal as events: the first asks for an orderly end, the next for
a quick one.

What an end means is decided by who waits: `gateway.app.serve` for a door alone, `cli.service` for
a whole service.
"""

import asyncio
import signal
from types import TracebackType

__all__ = ["StopSignals"]

_SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)


class StopSignals:
    """A context inside which signals set events instead of ending the process.

    A signal that is ignored stays so: `nohup` and a script's `&` mean it. Enter it in the main
    thread, inside a running loop; at the end, what was in force before is in force again.
    """

    def __init__(self) -> None:
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
            self._loop.add_signal_handler(number, self._ring)
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
