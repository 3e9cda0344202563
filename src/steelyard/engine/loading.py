"""Answers clients while the model loads.

Loading keeps the main thread busy, in C code for seconds at a time, so a thread of its own serves
the transport meanwhile. Once the model is there, `engine.loop` takes the transport over.
"""

import logging
import os
import threading
import time
import types

from steelyard.contract.engine import EngineStatus
from steelyard.contract.errors import EngineStarting, to_info
from steelyard.contract.wire import (
    Abort,
    Command,
    Done,
    Drain,
    Event,
    Failed,
    Progress,
    StatusQuery,
    StatusReply,
    Submit,
    Warm,
)
from steelyard.engine.exit_codes import ExitCode
from steelyard.engine.stop_signals import StopSignals
from steelyard.engine.transport import Notice, Transport

__all__ = ["LoadingDesk"]

_log = logging.getLogger(__name__)

_TICK_S = 0.1
_UNWIND_S = 2.0
"""How long the main thread may take to leave the load after a stop, before it is cut short."""


class LoadingDesk:
    """Owns `transport` while the context is open; `report` may be called from any thread."""

    def __init__(self, transport: Transport, stop: StopSignals) -> None:
        self._transport = transport
        self._stop = stop
        self._progress = Progress(share=0.0, what="starting")
        self._told = self._progress
        self._is_closed = False
        self._cut_short_s: float | None = None
        self._thread = threading.Thread(target=self._main_loop, name="loading-desk", daemon=True)

    def __enter__(self) -> "LoadingDesk":
        self._thread.start()
        return self

    def __exit__(
        self,
        _kind: type[BaseException] | None,
        _error: BaseException | None,
        _trace: types.TracebackType | None,
    ) -> None:
        self._is_closed = True
        self._stop.wake()
        self._thread.join()

    def report(self, share: float, what: str) -> None:
        """Note how far loading is; clients are told within a tenth of a second."""
        self._progress = Progress(share=min(max(share, 0.0), 1.0), what=what)

    def _main_loop(self) -> None:
        while not self._is_closed:
            for connection_id, happening in self._transport.poll(_TICK_S):
                self._react(connection_id, happening)
            self._tell_progress()
            self._cut_short_when_due()

    def _react(self, connection_id: int, happening: Command | Notice) -> None:
        if happening is Notice.OPENED:
            self._transport.send(connection_id, self._told)
        elif happening is Notice.WOKEN:
            # Only signals wake an open desk; the handler may have to wait for the main thread.
            self._cut_short_s = time.monotonic() + _UNWIND_S
        elif not isinstance(happening, Notice) and (answer := _answer(happening)) is not None:
            self._transport.send(connection_id, answer)

    def _tell_progress(self) -> None:
        if self._progress is not self._told:
            self._told = self._progress
            for connection_id in self._transport.connection_ids:
                self._transport.send(connection_id, self._told)

    def _cut_short_when_due(self) -> None:
        if self._cut_short_s is not None and time.monotonic() >= self._cut_short_s:
            _log.warning("stopped in the middle of loading")
            self._transport.close()
            logging.shutdown()
            os._exit(ExitCode.ENDED)


def _answer(command: Command) -> Event | None:
    """What to say to a command that came too early; None when nothing needs saying."""
    early = to_info(EngineStarting("the engine is loading its model", delay_s=1.0))
    match command:
        case Submit(request):
            return Failed(request.request_id, early)
        case StatusQuery(query_id):
            return StatusReply(query_id, EngineStatus(state="starting"))
        case Warm(query_id) | Drain(query_id):
            return Done(query_id, early)
        case Abort():
            return None
