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

    Raises `EngineStalled` in the body after `stall_s` without a token. Calls `on_silence` after
    every `silence_s` in which the client heard nothing; None for an answer that is not streamed.
    """

    def __init__(
        self, stall_s: float, silence_s: float, on_silence: Callable[[], None] | None = None
    ) -> None:
        self._loop = asyncio.get_running_loop()
        self._stall_s = stall_s
        self._silence_s = silence_s
        self._on_silence = on_silence
        self._timeout = asyncio.timeout(None)
        self._touched_s = self._said_s = self._loop.time()
        self._timer: asyncio.TimerHandle | None = None

    def touched(self, *, has_spoken: bool = False) -> None:
        """Tokens came; `has_spoken` when the client has been sent something for them."""
        self._touched_s = self._loop.time()
        if has_spoken:
            self._said_s = self._touched_s

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
        due_s = self._touched_s + self._stall_s
        if self._on_silence is not None:
            due_s = min(due_s, self._said_s + self._silence_s)
        self._timer = self._loop.call_at(due_s, self._ring)

    def _ring(self) -> None:
        now_s = self._loop.time()
        if now_s - self._touched_s >= self._stall_s:
            self._timeout.reschedule(now_s)
            return
        if self._on_silence is not None and now_s - self._said_s >= self._silence_s:
            self._said_s = now_s
            self._on_silence()
        self._arm()
