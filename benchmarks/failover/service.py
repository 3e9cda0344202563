"""A real service with several replicas: started, looked at through `/metrics`, stopped."""

import asyncio
import contextlib
import re
import sys
import tempfile
from collections.abc import AsyncIterator, Sequence
from pathlib import Path

import aiohttp
import psutil

__all__ = ["Service", "running_service"]

_START_S = 400.0
_POLL_S = 0.05


class Service:
    """A running `steelyard serve`, and the client session to ask it with."""

    def __init__(self, session: aiohttp.ClientSession, url: str, pid: int) -> None:
        self.session = session
        self.url = url
        self._pid = pid

    async def metrics(self) -> dict[str, float]:
        """All series with their values."""
        async with self.session.get(f"{self.url}/metrics") as answer:
            rows = (await answer.text()).splitlines()
        pairs = (row.rpartition(" ") for row in rows if row and not row.startswith("#"))
        return {series: float(value) for series, _, value in pairs}

    async def state(self, name: str) -> str:
        """Health of a replica."""
        for series, value in (await self.metrics()).items():
            if value == 1 and series.startswith(f'steelyard_replica_health{{replica="{name}"'):
                return re.search('state="([a-z]+)"', series)[1]  # type: ignore[index]
        return "unknown"

    async def busiest(self, names: Sequence[str]) -> str:
        """The replica with the most running requests."""
        values = await self.metrics()
        return max(
            names, key=lambda name: values.get(f'steelyard_engine_running{{replica="{name}"}}', 0)
        )

    async def moves(self) -> float:
        """Requests that have gone on at another replica."""
        values = await self.metrics()
        return sum(v for k, v in values.items() if k.startswith("steelyard_failover_moves_total{"))

    async def until(self, name: str, *states: str) -> None:
        """Return once a replica is in one of these states."""
        while await self.state(name) not in states:
            await asyncio.sleep(_POLL_S)

    def pid(self, name: str) -> int:
        """The process that listens on the replica's socket."""
        socket = name.replace("/", "-") + ".sock"
        for child in psutil.Process(self._pid).children(recursive=True):
            with contextlib.suppress(psutil.Error):
                if any(c.laddr.endswith(socket) for c in child.net_connections("unix")):
                    return child.pid
        raise LookupError(f"nobody listens for {name}")


@contextlib.asynccontextmanager
async def running_service(*arguments: str) -> AsyncIterator[Service]:
    """`steelyard serve` with these arguments, on a free port, ready."""
    with tempfile.TemporaryDirectory(prefix="failover-") as folder:
        log = Path(folder) / "log"
        command = [sys.executable, "-P", "-m", "steelyard.cli", "serve", "--port", "0", *arguments]
        with log.open("wb") as stderr:
            process = await asyncio.create_subprocess_exec(*command, stderr=stderr)
        try:
            url = await asyncio.wait_for(_address(process, log), _START_S)
            connector = aiohttp.TCPConnector(limit=0)
            async with aiohttp.ClientSession(connector=connector) as session:
                yield Service(session, url, process.pid)
        finally:
            with contextlib.suppress(ProcessLookupError):
                process.terminate()
            await process.wait()


async def _address(process: asyncio.subprocess.Process, log: Path) -> str:
    while True:
        text = log.read_text()
        if (found := re.search(r"address  (http://\S+)/v1", text)) is not None:
            return found[1]
        if process.returncode is not None:
            raise RuntimeError(f"the service ended:\n{text[-2000:]}")
        await asyncio.sleep(_POLL_S)
