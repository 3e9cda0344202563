"""Batches as one part of the door: opened, run and closed together with it."""

import asyncio
import logging

from steelyard.contract import Clock
from steelyard.gateway.batches.archive import Archive
from steelyard.gateway.batches.config import BatchesConfig
from steelyard.gateway.batches.runner import BatchRunner

__all__ = ["BatchService"]

_log = logging.getLogger(__name__)


class BatchService:
    """An archive, and the runner that works on what is in it."""

    def __init__(self, config: BatchesConfig, clock: Clock) -> None:
        self.archive = Archive(config)
        self.runner = BatchRunner(self.archive, clock)
        self._task: asyncio.Task[None] | None = None

    async def startup(self) -> None:
        """Go on where the last run ended. Raises `SettingsError` when the folder cannot be had."""
        await self.archive.startup()
        self._task = asyncio.create_task(self.runner.run())
        self._task.add_done_callback(_note_end)

    async def stop_lines(self) -> None:
        """Lines that run now will run again after the next start. Safe to repeat."""
        task, self._task = self._task, None
        if task is not None:
            task.cancel()
            await asyncio.wait((task,))

    async def shutdown(self) -> None:
        """Let go of the folder. Safe to repeat."""
        await self.stop_lines()
        await self.archive.shutdown()


def _note_end(task: "asyncio.Task[None]") -> None:
    if not task.cancelled() and (error := task.exception()) is not None:
        _log.error("batches are no longer worked on", exc_info=error)
