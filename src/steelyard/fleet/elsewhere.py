"""The place of a process that somebody else keeps: an endpoint is connected to, never started.

To `fleet.replica` it is a process that runs until it is given up: "starting it again" means no more
than connecting anew.
"""

import asyncio

from steelyard.contract.errors import EngineLost, SteelyardError
from steelyard.fleet.exits import ProcessExit

__all__ = ["ElsewhereLauncher", "ElsewhereProcess"]


class ElsewhereLauncher:
    """`fleet.process.Launcher` that starts nothing. `name` is for messages."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._process: ElsewhereProcess | None = None

    async def launch(self) -> "ElsewhereProcess":
        """Never fails: whether anybody is there is found out by connecting."""
        self._process = ElsewhereProcess(self._name)
        return self._process

    def refuse(self, error: SteelyardError) -> None:
        """The endpoint can never serve, because of `error`: connecting again cannot help."""
        if self._process is not None:
            self._process.end(error, is_final=True)


class ElsewhereProcess:
    """`fleet.process.RunningProcess` without a process of ours."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._ended: asyncio.Future[ProcessExit] = asyncio.get_running_loop().create_future()

    @property
    def pid(self) -> None:
        """It is no process of this machine."""

    @property
    def tail(self) -> list[str]:
        """Its log is not ours to read."""
        return []

    def terminate(self) -> None:
        """Have `wait` return; the endpoint goes on."""
        self.end(EngineLost(f"the endpoint of {self._name} was given up"), is_final=False)

    def kill(self) -> None:
        """As `terminate`."""
        self.terminate()

    def end(self, error: SteelyardError, *, is_final: bool) -> None:
        """Have `wait` return with `error`. Safe to repeat: the first reason counts."""
        if not self._ended.done():
            self._ended.set_result(ProcessExit(None, error, is_final))

    async def wait(self) -> ProcessExit:
        """Return once it was given up."""
        return await asyncio.shield(self._ended)
