"""A service from start to end: the door and the engine behind it, in one event loop.

    startup     listen, start the engine, watch the machine
    main loop   until a signal comes, or the engine turns out never to start
    shutdown    stop listening, let streams finish, stop the engine

The door listens before the engine is ready, so that orchestrators see it alive (`/health`) and
loading (`/readiness`), and so that a port in use is known before minutes of loading.
"""

import asyncio
import contextlib
import shutil
import tempfile
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from pathlib import Path
from typing import Any

from steelyard.cli.loading import LoadedFiles, engine_progress
from steelyard.cli.wiring import (
    ServedEngine,
    make_engine,
    make_gateway,
    make_metrics,
    make_sampler,
)
from steelyard.contract import EngineInfo
from steelyard.gateway.app import serve
from steelyard.settings import Resolved

__all__ = ["Announce", "new_runner", "private_engine", "run_in_loop", "run_service"]

Announce = Callable[[str, int, EngineInfo], None]
"""Told host, port and engine once requests can be served."""


async def run_service(resolved: Resolved, files: LoadedFiles, announce: Announce) -> None:
    """Serve until a signal. Raises what keeps the door or the engine from starting."""
    with _runtime_dir() as runtime_dir, engine_progress() as show:
        served = make_engine(
            resolved, files.checkpoint, files.text, runtime_dir=runtime_dir, on_change=show
        )
        metrics = make_metrics(resolved.deployment)
        gateway = make_gateway(resolved, served, files.text, metrics)
        listening = asyncio.Event()
        serving = asyncio.create_task(serve(gateway, lambda *_: listening.set()))
        sampling = asyncio.create_task(make_sampler(resolved, served, metrics).run())
        try:
            await _start(serving, listening, served)
            if not serving.done():
                announce(*gateway.address, served.engine.info)
            await serving
        finally:
            await _cancel(sampling)
            await _cancel(serving)
            await served.keeper.shutdown()


@contextlib.asynccontextmanager
async def private_engine(resolved: Resolved, files: LoadedFiles) -> AsyncIterator[ServedEngine]:
    """An engine for this command alone, without a door."""
    with _runtime_dir() as runtime_dir:
        with engine_progress() as show:
            served = make_engine(
                resolved, files.checkpoint, files.text, runtime_dir=runtime_dir, on_change=show
            )
            try:
                served.keeper.startup()
                await served.keeper.wait_ready()
            except BaseException:
                await served.keeper.shutdown()
                raise
        try:
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


async def _start(
    serving: asyncio.Task[None], listening: asyncio.Event, served: ServedEngine
) -> None:
    """Return when the engine is ready, or when the door has ended before that."""
    await _first_of(serving, listening.wait())
    if not serving.done():
        served.keeper.startup()
        await _first_of(serving, served.keeper.wait_ready())


async def _first_of(serving: asyncio.Task[None], other: Coroutine[Any, Any, Any]) -> None:
    """Wait for either; raise what the other raised."""
    task = asyncio.create_task(other)
    try:
        await asyncio.wait({serving, task}, return_when=asyncio.FIRST_COMPLETED)
        if task.done():
            task.result()
    finally:
        await _cancel(task)


async def _cancel(task: asyncio.Task[None]) -> None:
    """Cancel unless it has ended; what it raised has been, or will be, seen by its owner."""
    task.cancel()
    await asyncio.wait({task})


@contextlib.contextmanager
def _runtime_dir() -> Iterator[Path]:
    """A folder only this user can enter; sockets in it need no further guard."""
    folder = Path(tempfile.mkdtemp(prefix="steelyard-"))
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)
