"""Keeps one engine process alive and connected: carries out what `fleet.lifecycle` decides.

Requests do not pass through here: they go to the engine object whose connection this keeps up.
"""

import asyncio
import contextlib
import logging
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from steelyard.contract import Clock, EngineInfo, EngineStatus, RealClock
from steelyard.contract.clock import within
from steelyard.contract.errors import (
    EngineLost,
    EngineStalled,
    EngineStarting,
    Retry,
    SteelyardError,
)
from steelyard.contract.wire import Progress
from steelyard.fleet.config import RestartPolicy
from steelyard.fleet.lifecycle import Action, Lifecycle, Phase
from steelyard.fleet.process import Launcher, RunningProcess

__all__ = ["EngineConnection", "Replica", "ReplicaStatus"]

_log = logging.getLogger(__name__)

_RECONNECT_PAUSE_S = 0.2
_LOOKS_PER_SILENCE = 10
_ASK_AGAIN_S = 2.0
"""What clients are told to wait while a process starts: small models take about so long."""


class EngineConnection(Protocol):
    """What a replica needs of its engine object (`backends.embedded.EmbeddedEngine`)."""

    async def connect(
        self, *, timeout_s: float, on_progress: Callable[[Progress], None] | None = None
    ) -> EngineInfo:
        """Return once the engine behind it is ready; may be called again after a loss."""
        ...

    async def wait_lost(self) -> EngineLost:
        """Return once the connection is gone."""
        ...

    async def status(self) -> EngineStatus:
        """A fresh snapshot. Raises an error of the tree when none comes within a time limit."""
        ...

    async def close(self) -> None:
        """Disconnect. Safe to repeat."""
        ...


@dataclass(frozen=True, slots=True)
class ReplicaStatus:
    """A snapshot for people and for the dashboard."""

    name: str
    phase: Phase
    is_wanted: bool
    pid: int | None
    """None while there is no process."""
    restarts: int
    error: SteelyardError | None
    """What is wrong now, or was before the last start; None while ready."""
    progress: Progress | None
    """How far loading is; None unless it is loading."""
    stderr_tail: tuple[str, ...]


class Replica:
    """One process, started by `launcher`, with `engine` connected to it."""

    def __init__(
        self,
        name: str,
        *,
        launcher: Launcher,
        engine: EngineConnection,
        clock: Clock | None = None,
        policy: RestartPolicy | None = None,
        on_change: Callable[[ReplicaStatus], None] | None = None,
    ) -> None:
        self._name = name
        self._launcher = launcher
        self._engine = engine
        self._clock = clock or RealClock()
        self._policy = policy or RestartPolicy()
        self._lifecycle = Lifecycle(self._policy)
        self._on_change = on_change
        self._process: RunningProcess | None = None
        self._progress: Progress | None = None
        self._attendants: list[asyncio.Task[None]] = []
        self._keeper: asyncio.Task[None] | None = None
        self._news = asyncio.Event()
        self._change = asyncio.Event()
        """Set, and replaced, at every change."""

    @property
    def status(self) -> ReplicaStatus:
        """Changes nothing."""
        lifecycle, process = self._lifecycle, self._process
        return ReplicaStatus(
            name=self._name,
            phase=lifecycle.phase,
            is_wanted=lifecycle.is_wanted,
            pid=process.pid if process else None,
            restarts=lifecycle.restarts,
            error=lifecycle.error,
            progress=self._progress,
            stderr_tail=tuple(process.tail) if process else (),
        )

    def startup(self) -> None:
        """Want the process up, from now on; returns at once."""
        self._lifecycle.want(True)
        if self._keeper is None or self._keeper.done():
            self._keeper = asyncio.create_task(self._main_loop(), name=f"replica-{self._name}")
        self._news.set()

    async def wait_ready(self) -> None:
        """Return once it is ready. Raises what broke it when it cannot become so."""
        while (phase := self._lifecycle.phase) is not Phase.READY:
            if phase is Phase.BROKEN and self._lifecycle.error is not None:
                raise self._lifecycle.error
            if not self._lifecycle.is_wanted:
                raise EngineLost(f"the replica {self._name} is stopped")
            await self._change.wait()

    async def wait_broken(self) -> SteelyardError:
        """Return, with the reason, once starting it again cannot help; maybe never."""
        while self._lifecycle.phase is not Phase.BROKEN or self._lifecycle.error is None:
            await self._change.wait()
        return self._lifecycle.error

    def absence(self) -> SteelyardError:
        """What to tell requests while the engine is not connected. Changes nothing."""
        lifecycle = self._lifecycle
        if lifecycle.phase is Phase.BROKEN:
            return EngineLost(f"the replica {self._name} cannot be started")
        if lifecycle.has_started and not lifecycle.is_wanted:
            return EngineLost(f"the replica {self._name} is stopped")
        what = "was lost and is being restarted" if lifecycle.was_ever_ready else "is starting"
        if self._progress is not None:
            what += f": {self._progress.what}, {self._progress.share:.0%}"
        delay_s = _ASK_AGAIN_S
        if lifecycle.phase is Phase.WAITING and lifecycle.due_s is not None:
            delay_s += max(lifecycle.due_s - self._clock.now(), 0.0)
        return EngineStarting(f"the engine {what}", delay_s=delay_s)

    async def shutdown(self) -> None:
        """Stop the process (it drains first) and return when it is gone. Safe to repeat.

        Cancelling it kills the process.
        """
        self._lifecycle.want(False)
        self._news.set()
        self._tell()
        if self._keeper is not None:
            try:
                await asyncio.shield(self._keeper)
            except asyncio.CancelledError:
                self.kill()
                raise
        await self._engine.close()

    async def leave(self) -> None:
        """Stop keeping the process and disconnect from it, but let it live."""
        tasks = [task for task in (self._keeper, *self._attendants) if task is not None]
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)
        await self._engine.close()

    def kill(self) -> None:
        """End the process now, whatever it is doing; unless it is unwanted, another one follows."""
        if self._process is not None:
            self._process.kill()

    async def _main_loop(self) -> None:
        lifecycle = self._lifecycle
        while True:
            while (action := lifecycle.advance(self._clock.now())) is not None:
                await self._carry_out(action)
            self._tell()
            if lifecycle.phase is Phase.DOWN and not lifecycle.is_wanted:
                return
            await self._wait_for_news()

    async def _carry_out(self, action: Action) -> None:
        _log.info("replica %s: %s", self._name, action.value)
        match action:
            case Action.SPAWN:
                await self._spawn()
            case Action.TERMINATE:
                if self._process is not None:
                    self._process.terminate()
            case Action.KILL:
                if self._process is not None:
                    self._process.kill()

    async def _spawn(self) -> None:
        try:
            self._process = await self._launcher.launch()
        except SteelyardError as error:
            is_final = error.retry is Retry.NEVER
            self._lifecycle.on_exit(self._clock.now(), error, is_final=is_final)
            return
        self._attendants = [
            asyncio.create_task(self._watch_exit(self._process)),
            asyncio.create_task(self._keep_connected()),
        ]

    async def _watch_exit(self, process: RunningProcess) -> None:
        ended = await process.wait()
        _, connecting = self._attendants
        connecting.cancel()
        await asyncio.wait((connecting,))
        self._process = None
        self._progress = None
        self._lifecycle.on_exit(self._clock.now(), ended.error, is_final=ended.is_final)
        if self._lifecycle.phase is Phase.WAITING:  # what breaks it is told by whoever waits for it
            _log.error("replica %s: %s", self._name, ended.error)
        self._news.set()

    async def _keep_connected(self) -> None:
        while True:
            try:
                await self._engine.connect(
                    timeout_s=self._policy.start_timeout_s, on_progress=self._note_progress
                )
                self._progress = None
                self._lifecycle.on_ready(self._clock.now())
                self._news.set()
                error = await self._wait_useless()
            except SteelyardError as failed:
                error = failed
            self._lifecycle.on_connection_lost(self._clock.now(), error)
            self._news.set()
            await self._clock.sleep(_RECONNECT_PAUSE_S)

    async def _wait_useless(self) -> SteelyardError:
        """Return, with the reason, once the connection is gone or the engine behind it mute.

        The engine's own watchdog cannot see a process that was stopped, or a bug that keeps the
        interpreter lock.
        """
        tasks = [
            asyncio.ensure_future(work) for work in (self._engine.wait_lost(), self._wait_mute())
        ]
        try:
            done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            return done.pop().result()
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.wait(tasks)

    async def _wait_mute(self) -> SteelyardError:
        limit_s = self._policy.silence_s
        heard_s = self._clock.now()
        while self._clock.now() - heard_s < limit_s:
            await self._clock.sleep(limit_s / _LOOKS_PER_SILENCE)
            with contextlib.suppress(SteelyardError):
                await self._engine.status()
                heard_s = self._clock.now()
        return EngineStalled(
            f"the engine has not answered for {limit_s:g} s",
            fix="raise engine.watchdog_s if a step may take so long",
        )

    def _note_progress(self, progress: Progress) -> None:
        self._progress = progress
        self._tell()

    async def _wait_for_news(self) -> None:
        due_s = self._lifecycle.due_s
        if due_s is None:
            await self._news.wait()
        else:
            try:
                await within(self._clock, due_s - self._clock.now(), self._news.wait())
            except TimeoutError:
                return
        self._news.clear()

    def _tell(self) -> None:
        changed, self._change = self._change, asyncio.Event()
        changed.set()
        if self._on_change is not None:
            self._on_change(self.status)
