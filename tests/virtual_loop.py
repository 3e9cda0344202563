"""An event loop whose time jumps to the next timer instead of waiting for it.

Whole asyncio programs run under it as they are, in virtual time, and the same way every time.
Real sockets and processes do not belong here: nobody waits for them.
"""

import asyncio
import selectors
from collections.abc import Coroutine
from typing import Any, TypeVar

__all__ = ["LoopClock", "VirtualLoop", "run_virtually"]

T = TypeVar("T")


class LoopClock:
    """`contract.Clock` on the running loop's time."""

    def now(self) -> float:
        return asyncio.get_running_loop().time()

    async def sleep(self, duration_s: float) -> None:
        await asyncio.sleep(max(duration_s, 0.0))


class VirtualLoop(asyncio.SelectorEventLoop):
    """Time stands still while anything can run, and jumps when nothing can."""

    def __init__(self) -> None:
        self._virtual_s = 1000.0
        super().__init__(_JumpingSelector(self))

    def time(self) -> float:
        return self._virtual_s

    def jump(self, duration_s: float) -> None:
        self._virtual_s += duration_s


class _JumpingSelector(selectors.SelectSelector):
    def __init__(self, loop: VirtualLoop) -> None:
        super().__init__()
        self._loop = loop

    def select(self, timeout: float | None = None) -> list[Any]:
        if timeout is None:
            raise AssertionError("everybody waits, and for nothing that will ever happen")
        if timeout > 0:
            self._loop.jump(timeout)
        return super().select(0)


def run_virtually(main: Coroutine[Any, Any, T]) -> T:
    """Run `main` to its end in virtual time."""
    with asyncio.Runner(loop_factory=VirtualLoop) as runner:
        return runner.run(main)
