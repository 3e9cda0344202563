"""The keeper's connection to one worker, in the shape that `fleet.replica` keeps processes by.

Whoever keeps engine processes alive keeps workers alive in the same way: started again after a
death, with growing pauses, and replaced when they no longer answer.
"""

import asyncio
import os
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from steelyard.contract import EngineInfo, EngineStatus
from steelyard.contract.errors import EngineLost, EngineStalled, ProtocolError
from steelyard.contract.wire import Progress
from steelyard.fleet.process import ProcessCommand
from steelyard.gateway.workers import Channel
from steelyard.gateway.workers.channel import Answer
from steelyard.gateway.workers.messages import Hello, Message, Snapshot, TakeMetrics

if TYPE_CHECKING:
    from steelyard.cli.worker import WorkerOrder

__all__ = ["WorkerLink", "worker_command"]

_RETRY_S = 0.02
_ASK_S = 2.0


def worker_command(order: "WorkerOrder") -> ProcessCommand:
    """How to start a worker, which does not outlive this process."""
    # -P: the working directory must not be able to shadow modules.
    argv = (sys.executable, "-P", "-m", "steelyard.cli.worker")
    return ProcessCommand(argv=argv, stdin=msgspec.json.encode(order))


class WorkerLink:
    """`fleet.replica.EngineConnection` to a worker that listens on `path`."""

    def __init__(
        self,
        path: Path,
        *,
        answer: Answer,
        catch_up: Callable[["WorkerLink"], Awaitable[None]],
    ) -> None:
        """`answer` is for what the worker asks; `catch_up` brings a new one up to date."""
        self._path = path
        self._answer = answer
        self._catch_up = catch_up
        self._channel: Channel | None = None
        self._is_caught_up = False
        self.snapshot: Snapshot | None = None
        """The newest one of the worker connected now."""
        self.on_snapshot: Callable[[Snapshot], None] = lambda taken: None

    @property
    def is_current(self) -> bool:
        """True while a worker is connected that follows the present settings."""
        channel = self._channel
        return self._is_caught_up and channel is not None and not channel.lost.done()

    async def connect(
        self, *, timeout_s: float, on_progress: Callable[[Progress], None] | None = None
    ) -> EngineInfo:
        """Return once the worker's door is open and it follows the present settings."""
        await self.close()
        try:
            async with asyncio.timeout(timeout_s):
                self._channel = await self._dial()
                await self.ask(Hello(), timeout_s=timeout_s)
                await self._catch_up(self)
                self._is_caught_up = True
        except TimeoutError as error:
            raise EngineStalled(f"a worker was not ready after {timeout_s:g} s") from error
        return EngineInfo(
            model="", context_tokens=0, vocab_size=0, end_token_ids=(), epoch=str(id(self._channel))
        )

    async def ask(self, question: Message, *, timeout_s: float) -> Message:
        """The worker's answer. Raises `EngineLost`, or the error that it answers with."""
        if self._channel is None:
            raise EngineLost("no connection to the worker")
        return await self._channel.ask(question, timeout_s=timeout_s)

    async def wait_lost(self) -> EngineLost:
        """Return once the connection is gone."""
        if self._channel is not None:
            await asyncio.shield(self._channel.lost)
        return EngineLost("the worker closed the connection")

    async def status(self) -> EngineStatus:
        """Proof that it lives; takes its metrics along."""
        taken = await self.ask(TakeMetrics(), timeout_s=_ASK_S)
        if not isinstance(taken, Snapshot):
            raise ProtocolError("a worker's answer is no snapshot")
        self.snapshot = taken
        self.on_snapshot(taken)
        return EngineStatus(state="ready")

    async def close(self) -> None:
        """Disconnect. Safe to repeat."""
        channel, self._channel = self._channel, None
        self.snapshot, self._is_caught_up = None, False
        if channel is not None:
            channel.close()

    async def _dial(self) -> Channel:
        loop = asyncio.get_running_loop()
        while True:
            try:
                _, channel = await loop.create_unix_connection(
                    lambda: Channel(self._answer), os.fspath(self._path)
                )
                return channel
            except (ConnectionError, FileNotFoundError):
                await asyncio.sleep(_RETRY_S)
