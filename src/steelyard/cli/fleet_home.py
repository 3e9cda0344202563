"""Where a fleet lives on this machine, and its supervisor: what `steelyard up` adds to `serve`.

    state_dir/
        admin.sock      orders of operators
        state.json      processes to be found again, and what operators have changed
        run/NAME.sock   engines
        logs/NAME.log   what engines say

Engine processes are detached: they live on when the supervisor dies, and the next one takes them
over. `wiring` builds the replicas; this decides how they are started and who may order them about.
"""

import asyncio
import contextlib
import os
import re
import signal
from collections.abc import Callable
from pathlib import Path

from steelyard.cli.replicas import Replicas, posts
from steelyard.contract.errors import SettingsError, SteelyardError
from steelyard.engine.config import EngineConfig
from steelyard.fleet.admin_socket import AdminSocket
from steelyard.fleet.crew import Post
from steelyard.fleet.detached import DetachedLauncher, Places
from steelyard.fleet.ledger import Ledger
from steelyard.fleet.lifecycle import Phase
from steelyard.fleet.orders import Desk
from steelyard.fleet.process import Launcher, engine_command
from steelyard.fleet.replica import ReplicaStatus
from steelyard.fleet.standby import Standbys
from steelyard.settings import Deployment
from steelyard.settings.paths import default_data_dir, expanded

__all__ = ["FleetHome", "Supervisor", "admin_path", "end_replicas", "state_folder"]

_LONGEST_FOLDER_BYTES = 80
"""Paths of sockets may have 107 bytes on Linux and 103 elsewhere, their names included."""
_LOST = ("absent", "ejected")


def state_folder(deployment: Deployment) -> Path:
    """`state_dir` with `null` and `~` resolved. It need not exist."""
    if deployment.state_dir is not None:
        return expanded(deployment.state_dir).absolute()
    name = re.sub(r"[^A-Za-z0-9._-]", "-", deployment.served_as)[:40]
    return default_data_dir() / "fleets" / name


def admin_path(deployment: Deployment) -> Path:
    """The socket that takes orders."""
    return state_folder(deployment) / "admin.sock"


class FleetHome:
    """The folder of one fleet, made ready."""

    def __init__(self, deployment: Deployment, *, keeps_replicas: bool) -> None:
        """`keeps_replicas`: they are left running when the service is asked to end.

        Raises `SettingsError` when there is nothing to keep, or the folder cannot be used.
        """
        if deployment.backend != "embedded":
            raise SettingsError(
                f"{deployment.backend} has no engine processes that could be kept",
                param="backend",
                fix="use `steelyard serve`",
            )
        self._deployment = deployment
        self.keeps_replicas = keeps_replicas
        self.folder = state_folder(deployment)
        self.run_folder = self.folder / "run"
        self._logs = self.folder / "logs"
        if len(os.fsencode(self.run_folder)) > _LONGEST_FOLDER_BYTES:
            raise SettingsError(
                f"{self.run_folder} is too long a path for sockets",
                param="state_dir",
                fix="set a shorter one",
            )
        try:
            for folder in (self.folder, self.run_folder, self._logs):
                folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        except OSError as error:
            raise SettingsError(
                f"{self.folder} cannot be made: {error.strerror}", param="state_dir"
            ) from error
        self.ledger = Ledger(self.folder / "state.json")
        self.supervisor: Supervisor | None = None

    @property
    def posts(self) -> list[Post]:
        """Those of the deployment file, as operators have scaled them."""
        groups = {
            name: group.model_copy(update={"replicas": self.ledger.count(name, group.replicas)})
            for name, group in self._deployment.replica_groups.items()
        }
        return posts(groups)

    def launcher(self, post: Post, config: EngineConfig) -> Launcher:
        """How the process of a post is started, or found."""
        places = Places(self._logs, post.file_name)
        command = engine_command(config, is_owned=False)
        return DetachedLauncher(post.name, command, places, self.ledger)

    def note_address(self, host: str, port: int) -> None:
        """Where the service is reached; `steelyard status` tells it."""
        if self.supervisor is not None:
            self.supervisor.desk.url = (
                f"http://[{host}]:{port}" if ":" in host else (f"http://{host}:{port}")
            )

    def note_change(self, status: ReplicaStatus) -> None:
        """A replica has changed: a lost one is replaced at once."""
        is_lost = status.phase in (Phase.WAITING, Phase.BROKEN) or status.error is not None
        if self.supervisor is not None and is_lost:
            self.supervisor.standbys.note_lost(status.name)

    def supervise(self, replicas: Replicas) -> "Supervisor":
        """The keeper of the fleet."""
        self.supervisor = Supervisor(self, replicas, drain_s=self._deployment.failover.drain_s)
        return self.supervisor


class Supervisor:
    """`wiring.Keeper` of replicas that take orders and outlive it."""

    def __init__(self, home: FleetHome, replicas: Replicas, *, drain_s: float) -> None:
        self._home = home
        self._replicas = replicas
        self.standbys = Standbys(replicas.crew, home.ledger)
        self.desk = Desk(
            replicas.crew, home.ledger, self.standbys, drain_s=drain_s, on_stop=self._stop
        )
        self._socket = AdminSocket(home.folder / "admin.sock", self.desk.answer)
        self._opening: asyncio.Task[None] | None = None
        replicas.engine.replicas.on_state = self._note_health

    def startup(self) -> None:
        """Take orders, and want all replicas up; returns at once."""
        self._opening = asyncio.create_task(self._open())

    async def wait_ready(self) -> None:
        """See `Crew.wait_ready`. Raises `SettingsError` when this fleet is running already."""
        if self._opening is not None:
            await self._opening
        await self._replicas.wait_ready()

    async def wait_broken(self) -> SteelyardError:
        """See `Crew.wait_broken`."""
        return await self._replicas.wait_broken()

    async def shutdown(self) -> None:
        """Stop the replicas, or leave them, as `keeps_replicas` says."""
        await self._socket.shutdown()
        self._home.supervisor = None  # whoever ends now is not lost
        if self._home.keeps_replicas:
            await self._replicas.leave()
            return
        await self._replicas.shutdown()
        self._home.ledger.clear()

    def kill(self) -> None:
        """End the replicas now."""
        self._replicas.kill()

    async def _open(self) -> None:
        await self._socket.startup()  # first, or two supervisors would fight for the replicas
        self._replicas.startup()

    def _stop(self) -> None:
        self._home.keeps_replicas = False
        os.kill(os.getpid(), signal.SIGTERM)

    def _note_health(self, name: str, state: str) -> None:
        if state in _LOST and self._home.supervisor is self:
            self.standbys.note_lost(name)


def end_replicas(ledger: Ledger, wait: Callable[[], None], *, grace_s: float) -> list[str]:
    """End what a dead supervisor has left; names of those that were there. `wait` sleeps a bit."""
    found = {name: record for name, record in ledger.processes.items() if record.is_alive()}
    for number, tries in ((signal.SIGTERM, int(grace_s * 10)), (signal.SIGKILL, 50)):
        for record in found.values():
            if record.is_alive():
                with contextlib.suppress(ProcessLookupError):
                    os.kill(record.pid, number)
        while tries and any(record.is_alive() for record in found.values()):
            wait()
            tries -= 1
    ledger.clear()
    return list(found)
