"""Notices silence on a stream: tells the client that we live, gives up on an engine that does not.

One timer per stream, re-armed only when it fires: a token costs one assignment. Where several
choices share a stream, any of them breaks the silence.
"""

import asyncio
from collections.abc import Callable
from types import TracebackType

from steelyard.contract.errors import EngineStalled

__all__ = ["Watch"]


class Watch:
    """An asynchronous context around everything that waits for an engine.

    Raises `EngineStalled` in the body after `stall_s` without `touched`. Calls `on_silence` every
    `silence_s` of silence; None for an answer that is not streamed.
    """

    def __init__(
        self, stall_s: float, silence_s: float, on_silence: Callable[[], None] | None = None
    ) -> None:
        self._loop = asyncio.get_running_loop()
        self._stall_s = stall_s
        self._silence_s = silence_s if on_silence is not None else stall_s
        self._on_silence = on_silence
        self._timeout = asyncio.timeout(None)
        self._touched_s = self._said_s = self._loop.time()
        self._timer: asyncio.TimerHandle | None = None

    def touched(self) -> None:
        """A token came."""
        self._touched_s = self._loop.time()

    async def __aenter__(self) -> "Watch":
        await self._timeout.__aenter__()
        self._arm()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._timer is not None:
            self._timer.cancel()
        try:
            await self._timeout.__aexit__(kind, error, trace)
        except TimeoutError:
            raise EngineStalled(f"no token came for {self._stall_s:g} s") from None

    def _arm(self) -> None:
        silent_at_s = max(self._touched_s, self._said_s) + self._silence_s
        due_s = min(silent_at_s, self._touched_s + self._stall_s)
        self._timer = self._loop.call_at(due_s, self._ring)

    def _ring(self) -> None:
        now_s = self._loop.time()
        if now_s - self._touched_s >= self._stall_s:
            self._timeout.reschedule(now_s)
            return
        if self._on_silence is not None and self._is_silent(now_s):
            self._said_s = now_s
            self._on_silence()
        self._arm()

    def _is_silent(self, now_s: float) -> bool:
        return now_s - max(self._touched_s, self._said_s) >= self._silence_s
