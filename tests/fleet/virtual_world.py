"""A world of fake processes under a virtual clock."""

import asyncio
from collections.abc import Callable

from steelyard.contract import EngineInfo, EngineStatus, VirtualClock
from steelyard.contract.errors import EngineLost, EngineStalled
from steelyard.contract.wire import Progress
from steelyard.fleet.process import ProcessExit

__all__ = ["FakeProcess", "FakeWorld"]

INFO = EngineInfo(model="m", context_tokens=1, vocab_size=1, end_token_ids=(), epoch="e")


class FakeProcess:
    """A process that dies when the test says so."""

    def __init__(self, pid: int) -> None:
        self.pid = pid
        self.tail = [f"line of {pid}"]
        self.ended: asyncio.Future[ProcessExit] = asyncio.get_running_loop().create_future()

    def die(self, *, is_final: bool = False) -> None:
        if not self.ended.done():
            self.ended.set_result(ProcessExit(-9, EngineLost(f"{self.pid} died"), is_final))

    terminate = kill = die

    async def wait(self) -> ProcessExit:
        return await self.ended


class FakeWorld:
    """Launches fake processes and is the engine object that connects to them."""

    def __init__(self, clock: VirtualClock, *, ready_after_s: float = 1.0) -> None:
        self.clock = clock
        self.ready_after_s = ready_after_s
        self.launches: list[float] = []
        self.process: FakeProcess | None = None
        self.lost: asyncio.Future[EngineLost] | None = None
        self.is_mute = False
        self.on_progress: Callable[[Progress], None] | None = None

    async def launch(self) -> FakeProcess:
        assert self.process is None or self.process.ended.done(), "two at once"
        self.launches.append(self.clock.now())
        self.process = FakeProcess(len(self.launches))
        return self.process

    async def connect(
        self, *, timeout_s: float, on_progress: Callable[[Progress], None] | None = None
    ) -> EngineInfo:
        self.on_progress = on_progress
        await self.clock.sleep(self.ready_after_s)
        self.lost = asyncio.get_running_loop().create_future()
        return INFO

    async def wait_lost(self) -> EngineLost:
        assert self.lost is not None
        return await self.lost

    async def status(self) -> EngineStatus:
        if self.is_mute:
            raise EngineStalled("no status")
        return EngineStatus(state="ready")

    async def close(self) -> None:
        pass
