"""A service from start to end: the door and the engine behind it, in one event loop.

    startup     listen, watch the machine, start the engine
    main loop   until a signal comes, or the engine turns out to be beyond repair
    shutdown    stop listening, let streams finish, stop the engine; a second signal hurries

The door listens before the engine is ready, so that orchestrators see it alive (`/health`) and
loading (`/readiness`), and so that a port in use is known before minutes of loading.
"""

import asyncio
import contextlib
import os
import shutil
import tempfile
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Iterator
from pathlib import Path
from typing import Any, TypeVar

from steelyard.cli.door import gateway_config, require_door
from steelyard.cli.doors import Doors, LocalDoors, admin_config
from steelyard.cli.fleet_home import FleetHome
from steelyard.cli.loading import LoadedFiles
from steelyard.cli.progress import EngineProgress
from steelyard.cli.reloading import Origin
from steelyard.cli.wiring import (
    ServedEngine,
    make_engine,
    make_engines,
    make_gateway,
    make_metrics,
    make_sampler,
    open_sample_file,
)
from steelyard.cli.worker_doors import WorkerDoors
from steelyard.contract import EngineInfo
from steelyard.contract.errors import SettingsError
from steelyard.fleet.replica import ReplicaStatus
from steelyard.gateway.stop_signals import StopSignals
from steelyard.settings import Resolved
from steelyard.telemetry import HardwareSampler

__all__ = [
    "Announce",
    "new_runner",
    "private_engine",
    "require_startable",
    "run_in_loop",
    "run_service",
]

ResultT = TypeVar("ResultT")

Announce = Callable[[str, int, EngineInfo], None]
"""Told host, port and engine once requests can be served."""

_LONGEST_FOLDER_BYTES = 80
"""Paths of sockets may have 107 bytes on Linux and 103 elsewhere, their names included."""

_SERVICE_TRIES = 2
"""A process that dies while it starts may have died alone; two are no accident."""
_PRIVATE_TRIES = 1
"""Whoever waits at a terminal can try again."""


def require_startable(resolved: Resolved) -> None:
    """Raise `SettingsError` for what would stop the start later on.

    Cheap, and meant to come before a model is fetched or loaded.
    """
    require_door(gateway_config(resolved.deployment), admin_config(resolved.deployment))
    open_sample_file(resolved.deployment)


async def run_service(
    resolved: Resolved,
    files: LoadedFiles,
    announce: Announce,
    origin: Origin | None = None,
    home: FleetHome | None = None,
) -> None:
    """Serve until a signal. Raises what keeps the door or the engine from serving.

    `origin` is where new settings are read from while it runs; None: nowhere. `home` is where the
    replicas live if they are to outlive this process.
    """
    progress = EngineProgress()

    def note_change(status: ReplicaStatus) -> None:
        progress(status)
        if home is not None:
            home.note_change(status)

    with _runtime_dir() as runtime_dir:
        metrics = make_metrics(resolved.deployment)
        served = make_engines(
            resolved,
            files,
            metrics,
            runtime_dir=runtime_dir,
            tries=_SERVICE_TRIES,
            on_change=note_change,
            home=home,
        )
        doors: Doors
        if resolved.deployment.gateway.workers == 1:
            gateway = make_gateway(resolved, served, files.text, metrics)
            doors = LocalDoors(resolved, gateway, metrics, origin)
        else:
            doors = WorkerDoors(resolved, files, served, metrics, folder=runtime_dir, origin=origin)
        sampler = make_sampler(resolved, served, metrics, lambda: doors.pids)
        with StopSignals(doors.on_hangup) as signals:
            service = _Service(served, doors, sampler, signals)
            try:
                with progress.open():
                    info = await service.startup()
                if info is not None:
                    announce(*doors.address, info)
                    await service.main_loop()
            finally:
                await service.shutdown()


class _Service:
    """Runs the parts it is given, in order."""

    def __init__(
        self,
        served: ServedEngine,
        doors: Doors,
        sampler: HardwareSampler,
        signals: StopSignals,
    ) -> None:
        self._served = served
        self._keeper = served.keeper
        self._doors = doors
        self._sampler = sampler
        self._signals = signals
        self._sampling: asyncio.Task[None] | None = None

    async def startup(self) -> EngineInfo | None:
        """The engine, once it is ready; None when a signal came before. Raises what is wrong."""
        await self._doors.startup()
        self._sampling = asyncio.create_task(self._sampler.run())
        self._keeper.startup()
        return await _unless(self._signals.first, self._settle())

    async def _settle(self) -> EngineInfo:
        info = await self._served.wait_ready()
        await self._doors.settle()
        return info

    async def main_loop(self) -> None:
        """Return when a signal came. Raises what broke the engine for good."""
        broken = await _unless(self._signals.first, self._keeper.wait_broken())
        if broken is not None:
            raise broken

    async def shutdown(self) -> None:
        """Door first, so that running requests still have an engine."""
        await self._doors.shutdown(self._signals.second)
        if self._sampling is not None:
            await _cancel(self._sampling)
        stopping = asyncio.create_task(self._keeper.shutdown())
        await _unless(self._signals.second, asyncio.shield(stopping))
        if not stopping.done():
            self._keeper.kill()
            await stopping


@contextlib.asynccontextmanager
async def private_engine(resolved: Resolved, files: LoadedFiles) -> AsyncIterator[ServedEngine]:
    """An engine for this command alone, without a door, ready to be used."""
    progress = EngineProgress()
    with _runtime_dir() as runtime_dir:
        served = make_engine(
            resolved,
            files,
            runtime_dir=runtime_dir,
            tries=_PRIVATE_TRIES,
            on_change=progress,
        )
        try:
            served.keeper.startup()
            with progress.open():
                await served.wait_ready()
            yield served
        finally:
            await served.keeper.shutdown()


def new_runner() -> asyncio.Runner:
    """A runner on uvloop where it exists."""
    try:
        import uvloop
    except ImportError:
        return asyncio.Runner()
    return asyncio.Runner(loop_factory=uvloop.new_event_loop)


def run_in_loop(main: Coroutine[Any, Any, None]) -> None:
    """Run `main` in a loop of its own. Ctrl-C cancels it and raises `KeyboardInterrupt`."""
    with new_runner() as runner:
        runner.run(main)


async def _unless(stop: asyncio.Event, work: Awaitable[ResultT]) -> ResultT | None:
    """The result of `work`; None, and `work` cancelled, when `stop` is set before."""
    working = asyncio.ensure_future(work)
    stopping = asyncio.ensure_future(stop.wait())
    try:
        await asyncio.wait((working, stopping), return_when=asyncio.FIRST_COMPLETED)
        return working.result() if working.done() else None
    finally:
        await _cancel(stopping)
        await _cancel(working)


async def _cancel(task: asyncio.Future[Any]) -> None:
    """Cancel unless it has ended; what it raised is, or will be, seen by its owner."""
    task.cancel()
    await asyncio.wait((task,))


@contextlib.contextmanager
def _runtime_dir() -> Iterator[Path]:
    """A folder only this user can enter; sockets in it need no further guard."""
    try:
        folder = Path(tempfile.mkdtemp(prefix="steelyard-"))
    except OSError as error:
        raise SettingsError(
            f"no folder for temporary files can be made: {error.strerror or error}",
            fix="make room in /tmp, or set TMPDIR to a folder that can be written",
        ) from error
    try:
        if len(os.fsencode(folder)) > _LONGEST_FOLDER_BYTES:
            raise SettingsError(
                f"{folder} is too long a path for sockets", fix="set TMPDIR to a shorter one"
            )
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)
