"""The door in several processes, seen from the one that keeps them: `Doors` for `--workers N`.

    this process     engines, hardware, administration, the settings       worker 0 … N-1
        └─ one socket for questions to each worker ──────────────────────────┘   └─ the public port

Workers share the port (SO_REUSEPORT: the kernel spreads connections) and reach the engines
themselves, so no token passes through here. A worker that dies is replaced, and costs only the
connections it had. Settings change in all of them or in none: first all prepare, then all follow.
"""

import asyncio
import contextlib
import logging
import os
import signal
import socket
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from steelyard.cli.door import gateway_config
from steelyard.cli.doors import make_admin, make_desk
from steelyard.cli.loading import LoadedFiles
from steelyard.cli.reloading import Origin, Reloader
from steelyard.cli.wiring import ServedEngine, make_model
from steelyard.cli.worker import WorkerOrder
from steelyard.cli.worker_link import WorkerLink, worker_command
from steelyard.contract import RealClock
from steelyard.contract.errors import SettingsError, SteelyardError
from steelyard.fleet.config import RestartPolicy
from steelyard.fleet.process import LocalLauncher, RunningProcess
from steelyard.fleet.replica import Replica, ReplicaStatus
from steelyard.gateway.auth.building import build_guard, require_keys
from steelyard.gateway.auth.guard import Guard
from steelyard.gateway.config import GatewayConfig
from steelyard.gateway.models import ModelTable
from steelyard.gateway.routes import About
from steelyard.gateway.workers import MergedPage
from steelyard.gateway.workers.messages import (
    Adopt,
    EnginePost,
    Message,
    PageText,
    Prepare,
    Roster,
    SettleEngines,
)
from steelyard.settings import Deployment, Resolved
from steelyard.telemetry import MergedMetrics, Metrics, configure_logging

__all__ = ["WorkerDoors"]

_log = logging.getLogger(__name__)

_START_S = 60.0
_SILENCE_S = 20.0
"""A worker whose event loop has not turned for so long is replaced."""
_STOP_MARGIN_S = 10.0
_TRIES = 2
_PREPARE_S = 15.0
"""More than fetching an identity provider's keys may take."""
_ASK_S = 2.0
_LOOK_S = 0.2
_READINESS_S = 1.0


@dataclass(frozen=True, slots=True)
class _Worker:
    """One of them."""

    name: str
    replica: Replica
    link: WorkerLink


class WorkerDoors:
    """`Doors` in processes of their own."""

    def __init__(
        self,
        resolved: Resolved,
        files: LoadedFiles,
        served: ServedEngine,
        metrics: Metrics,
        *,
        folder: Path,
        origin: Origin | None,
    ) -> None:
        """`folder` is private and takes the sockets; `origin` None: settings are not read again."""
        deployment = resolved.deployment
        self._served = served
        self._metrics = metrics
        self._merged = MergedMetrics(metrics)
        self._folder = folder
        self._files = files
        self._deployment = deployment
        self._secret = gateway_config(deployment).cache_secret
        self._created = int(time.time())
        self._posts: tuple[EnginePost, ...] = served.posts()
        if not self._posts and deployment.backend != "fake":
            raise SettingsError(
                f"only one process can serve backend = {deployment.backend}",
                param="gateway.workers",
                fix="set it to 1",
            )
        self._reserved: list[socket.socket] = []
        self._workers: list[_Worker] = []
        self._pids: dict[str, int | None] = {}
        self._guard = _GuardKeeper(gateway_config(deployment), metrics)
        self._tasks: list[asyncio.Task[None]] = []
        self._reloader = None
        if origin is not None and origin.file is not None:
            self._reloader = Reloader(resolved, origin, apply=self._apply, meter=metrics.service)
        clock = RealClock()
        model = make_model(deployment, served, files.text)
        self._page = MergedPage(
            [model],
            metrics,
            self._merged,
            clock=clock,
            timeout_s=_READINESS_S,
            refresh=self._refresh,
        )
        self._admin = make_admin(
            deployment,
            about=About(ModelTable([model]), self._page, clock, _READINESS_S),
            desk=make_desk(deployment, self._reloader, self._figures),
            guard=lambda: self._guard.guard,
            metrics=metrics,
        )

    @property
    def address(self) -> tuple[str, int]:
        """See `Doors.address`."""
        host, port, *_ = self._reserved[0].getsockname()
        return host, port

    @property
    def on_hangup(self) -> Callable[[], None] | None:
        """See `Doors.on_hangup`."""
        return None if self._reloader is None else self._reloader.ring

    @property
    def pids(self) -> dict[str, int]:
        """Of the workers that are there, by name."""
        return {name: pid for name, pid in self._pids.items() if pid is not None}

    async def startup(self) -> None:
        """See `Doors.startup`. Returns once every worker listens; raises why one does not."""
        gateway = self._deployment.gateway
        self._reserved = _reserve_port(gateway.host, gateway.port)
        if self._admin is not None:
            await self._admin.startup()
        self._guard.startup()
        self._workers = [self._make(number) for number in range(gateway.workers)]
        for worker in self._workers:
            worker.replica.startup()
        await asyncio.gather(*(worker.replica.wait_ready() for worker in self._workers))
        self._tasks.append(asyncio.create_task(self._publish_engines()))
        if self._reloader is not None:
            self._tasks.append(asyncio.create_task(self._reloader.run()))
        _warn_of_separate_budgets(gateway_config(self._deployment), gateway.workers)

    async def settle(self) -> None:
        """See `Doors.settle`."""
        with contextlib.suppress(SteelyardError):  # then the first requests wait, or are told
            await self._ask_all(SettleEngines(), _START_S)

    async def shutdown(self, hurry: asyncio.Event) -> None:
        """See `Doors.shutdown`."""
        for task in self._tasks:
            task.cancel()
        if self._tasks:
            await asyncio.wait(self._tasks)
        stopping = asyncio.gather(*(worker.replica.shutdown() for worker in self._workers))
        hurrying = asyncio.create_task(self._hurry(hurry))
        await stopping
        hurrying.cancel()
        await self._guard.shutdown()
        if self._admin is not None:
            await self._admin.shutdown()
        for reserved in self._reserved:
            reserved.close()

    async def _hurry(self, hurry: asyncio.Event) -> None:
        await hurry.wait()
        for pid in self.pids.values():
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGTERM)  # its second

    # Workers.

    def _make(self, number: int) -> _Worker:
        name = f"worker-{number}"
        control = self._folder / f"{name}.sock"
        link = WorkerLink(control, answer=self._answer, catch_up=self._catch_up)
        replica = Replica(
            name,
            launcher=_Launcher(name, lambda: self._order(control)),
            engine=link,
            policy=RestartPolicy(
                start_timeout_s=_START_S,
                silence_s=_SILENCE_S,
                stop_grace_s=self._deployment.gateway.shutdown_grace_s + _STOP_MARGIN_S,
                give_up_after=_TRIES,
            ),
            on_change=self._note_change,
        )
        link.on_snapshot = lambda taken: self._merged.take(self._process(name), taken.metrics)
        return _Worker(name, replica, link)

    def _order(self, control: Path) -> WorkerOrder:
        """For a worker that starts now: with the settings and the engines of now."""
        return WorkerOrder(
            control=str(control),
            deployment=_as_json(self._deployment),
            checkpoint=str(self._files.checkpoint.path),
            port=self.address[1],
            created=self._created,
            cache_secret=self._secret,
            posts=self._posts,
        )

    def _note_change(self, status: ReplicaStatus) -> None:
        """A worker came or went: what a dead one has counted stays counted."""
        name = status.name
        if status.pid != (former := self._pids.get(name)):
            if former is not None:
                self._merged.bury(self._process(name))
                if status.is_wanted:
                    self._metrics.service.worker_restarted()
            self._pids[name] = status.pid
        self._metrics.service.workers(len(self.pids))

    def _process(self, name: str) -> str:
        """Differs for every process."""
        return f"{name}/{self._pids.get(name)}"

    async def _catch_up(self, link: WorkerLink) -> None:
        """A worker that began with older settings, or engines, gets the present ones."""
        followed = posts = None
        while followed is not self._deployment or posts is not self._posts:
            followed, posts = self._deployment, self._posts
            await link.ask(Prepare(_as_json(followed)), timeout_s=_PREPARE_S)
            await link.ask(Adopt(), timeout_s=_ASK_S)
            await link.ask(Roster(posts), timeout_s=_ASK_S)

    async def _answer(self, question: Message) -> Message:
        """What workers ask: the metrics of all, for a client of theirs."""
        accept = getattr(question, "accept", "")
        return PageText(*await self._page.exposition(accept))

    async def _ask_all(self, question: Message, timeout_s: float) -> None:
        """Ask those that are there; who comes later is brought up to date then. Raises the first
        trouble, after all have answered."""
        work = (worker.link.ask(question, timeout_s=timeout_s) for worker in self._present)
        for end in await asyncio.gather(*work, return_exceptions=True):
            if isinstance(end, BaseException):
                raise end

    # What changes while they run.

    @property
    def _present(self) -> list[_Worker]:
        """Those that follow the settings in force."""
        return [worker for worker in self._workers if worker.link.is_current]

    async def _apply(self, deployment: Deployment) -> None:
        guard = await self._guard.prepare(gateway_config(deployment))
        await self._ask_all(Prepare(_as_json(deployment)), _PREPARE_S)
        present, self._deployment = self._present, deployment
        await self._guard.adopt(guard)
        for worker in present:
            try:
                await worker.link.ask(Adopt(), timeout_s=_ASK_S)
            except SteelyardError:  # it has died since, or hangs: its successor knows them
                _log.warning("%s does not follow the new settings; it is replaced", worker.name)
                worker.replica.kill()
        log = deployment.telemetry.log
        configure_logging(log.format, log.level)

    async def _publish_engines(self) -> None:
        while True:
            await asyncio.sleep(_LOOK_S)
            posts = self._served.posts()
            if posts != self._posts:
                self._posts = posts
                with contextlib.suppress(SteelyardError):  # whoever comes back catches up
                    await self._ask_all(Roster(posts), _ASK_S)

    async def _refresh(self) -> None:
        """The newest values of all workers that answer."""
        work = (worker.link.status() for worker in self._present)
        await asyncio.gather(*work, return_exceptions=True)

    async def _figures(self) -> dict[str, Any]:
        await self._refresh()
        taken = [worker.link.snapshot for worker in self._workers]
        known = [snapshot for snapshot in taken if snapshot is not None]
        return {
            "workers": len(self.pids),
            "in_flight": sum(snapshot.in_flight for snapshot in known),
            "waiting": sum(snapshot.waiting for snapshot in known),
        }


class _Launcher:
    """Starts a worker with the order of that moment."""

    def __init__(self, name: str, order: Callable[[], WorkerOrder]) -> None:
        self._name = name
        self._order = order

    async def launch(self) -> RunningProcess:
        return await LocalLauncher(self._name, worker_command(self._order())).launch()


class _GuardKeeper:
    """Who is let in to the listener for administration, which is in this process."""

    def __init__(self, config: GatewayConfig, metrics: Metrics) -> None:
        self._metrics = metrics
        self.guard = build_guard(config.auth, metrics.access)
        self._upkeep: asyncio.Task[None] | None = None

    def startup(self) -> None:
        self._upkeep = asyncio.create_task(self.guard.run())

    async def prepare(self, config: GatewayConfig) -> Guard:
        """Raises `SettingsError` when these settings cannot be followed."""
        guard = build_guard(config.auth, self._metrics.access, former=self.guard)
        await require_keys(guard)
        return guard

    async def adopt(self, guard: Guard) -> None:
        await self.shutdown()
        self.guard = guard
        self.startup()

    async def shutdown(self) -> None:
        if self._upkeep is not None:
            self._upkeep.cancel()
            await asyncio.wait((self._upkeep,))


def _reserve_port(host: str, port: int) -> list[socket.socket]:
    """Sockets that keep the port, without listening, for as long as they are open.

    Port 0 takes a free one. Workers bind to it themselves, and those that are replaced can do so
    again. Raises `SettingsError`.
    """
    try:
        return _bind_all(host, port)
    except OSError as error:
        raise SettingsError(
            f"{host}:{port} cannot be shared by several processes: {error.strerror or error}",
            param="gateway.port",
            fix="set another port (0 takes a free one), or gateway.workers: 1",
        ) from error


def _bind_all(host: str, port: int) -> list[socket.socket]:
    found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    reserved: list[socket.socket] = []
    for family, kind, protocol, _, address in found:
        sock = socket.socket(family, kind, protocol)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        if family == socket.AF_INET6:
            sock.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
        number = reserved[0].getsockname()[1] if reserved else port
        sock.bind((address[0], number, *address[2:]))
        reserved.append(sock)
    return reserved


def _as_json(deployment: Deployment) -> bytes:
    return deployment.model_dump_json().encode()


def _warn_of_separate_budgets(config: GatewayConfig, workers: int) -> None:
    tenants = config.tenants
    every = (tenants.default, *tenants.plans.values(), *tenants.named.values())
    if tenants.redis is None and not all(rules.limits.is_unlimited for rules in every):
        _log.warning(
            "tenants.redis.url is not set, so each of the %d workers counts the tenants' budgets "
            "on its own",
            workers,
        )
