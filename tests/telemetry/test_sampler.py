"""One sample per beat, to the metrics and to a file, and no failure stops the others."""

import asyncio
import contextlib
import csv
import logging
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest

from steelyard.contract import VirtualClock
from steelyard.telemetry import HardwareSampler, Metrics, ProcessProbe, SampleFile
from steelyard.telemetry.gpu import GpuProbe, NoGpus
from steelyard.telemetry.hardware import (
    GpuSample,
    HardwareSample,
    HostProbe,
    HostSample,
    ProcessSample,
)
from steelyard.telemetry.sample_file import COLUMNS

from .conftest import Scrape

_HOST = HostSample(1000, 400, 0, 2, 0.5)


class CalmHost(HostProbe):
    """A host that is always the same, or cannot be read."""

    def __init__(self) -> None:
        super().__init__()
        self.is_broken = False

    def sample(self) -> HostSample:
        if self.is_broken:
            raise OSError("no /proc")
        return _HOST


class Rig:
    """A sampler under virtual time; reading takes `slow_s`."""

    def __init__(self, clock: VirtualClock, metrics: Metrics, file: SampleFile | None) -> None:
        self.host = CalmHost()
        self.slow_s = 0.0
        self.read_at_s: list[float] = []
        self._clock = clock
        self.gpus = NoGpus()
        self.sampler = HardwareSampler(
            clock=clock,
            metrics=metrics,
            processes=ProcessProbe(dict),
            gpus=self.gpus,
            every_s=1.0,
            file=file,
            host=self.host,
            unix_time=lambda: 1_700_000_000 + clock.now(),
            in_thread=self._inline,
        )

    async def _inline(self, read: Callable[[], HardwareSample]) -> HardwareSample:
        self.read_at_s.append(self._clock.now())
        await self._clock.sleep(self.slow_s)
        return read()

    @contextlib.asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        task = asyncio.create_task(self.sampler.run())
        try:
            yield
        finally:
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await task


@pytest.fixture
def clock() -> VirtualClock:
    return VirtualClock()


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "samples" / "hardware.csv"


def _rows(path: Path) -> list[dict[str, str]]:
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


async def test_samples_come_once_a_second(clock: VirtualClock, metrics: Metrics) -> None:
    rig = Rig(clock, metrics, None)
    async with rig.running():
        await clock.advance(5.5)
    assert rig.read_at_s == [0, 1, 2, 3, 4, 5]
    assert Scrape(metrics).value("hardware_samples_total") == 6


async def test_a_slow_sample_neither_shifts_the_beat_nor_piles_up(
    clock: VirtualClock, metrics: Metrics
) -> None:
    rig = Rig(clock, metrics, None)
    async with rig.running():
        rig.slow_s = 0.25
        await clock.advance(2.5)
        rig.slow_s = 2.25
        await clock.advance(7)
    assert rig.read_at_s == [0, 1, 2, 3, 6, 9]


async def test_the_file_gets_one_header_and_one_row_per_sample(
    clock: VirtualClock, metrics: Metrics, path: Path
) -> None:
    for _ in range(2):  # a second run appends
        rig = Rig(clock, metrics, SampleFile(path, max_bytes=10**6))
        async with rig.running():
            await clock.advance(1.5)
    assert path.read_text().count("memory_used_bytes") == 1
    rows = _rows(path)
    assert len(rows) == 4
    assert tuple(rows[0]) == COLUMNS
    assert rows[0]["time"] == "2023-11-14T22:13:20.000Z"
    assert (rows[0]["kind"], rows[0]["memory_used_bytes"], rows[0]["busy"]) == (
        "host",
        "600",
        "0.5",
    )


async def test_a_broken_host_leaves_a_sample_without_host(
    clock: VirtualClock, metrics: Metrics
) -> None:
    rig = Rig(clock, metrics, None)
    rig.host.is_broken = True
    sample = await rig.sampler.sample_once()
    assert (sample.host, sample.errors) == (None, ("host",))
    assert Scrape(metrics).value("hardware_sample_errors_total", source="host") == 1


async def test_a_file_that_cannot_be_written_is_said_once_and_sampling_goes_on(
    clock: VirtualClock,
    metrics: Metrics,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
) -> None:
    blocked = tmp_path / "blocked"
    blocked.mkdir()
    rig = Rig(clock, metrics, SampleFile(blocked, max_bytes=10**6))
    with caplog.at_level(logging.WARNING):
        async with rig.running():
            await clock.advance(2.5)
    assert Scrape(metrics).value("hardware_sample_errors_total", source="file") == 3
    assert Scrape(metrics).value("host_memory_bytes") == 1000
    assert len(caplog.records) == 1


async def test_a_real_sample_is_taken_in_a_thread(metrics: Metrics, clock: VirtualClock) -> None:
    import os

    sampler = HardwareSampler(
        clock=clock,
        metrics=metrics,
        processes=ProcessProbe(lambda: {"gateway": os.getpid()}),
        gpus=NoGpus(),
    )
    sample = await sampler.sample_once()
    assert sample.host is not None
    assert [process.role for process in sample.processes] == ["gateway"]
    assert sample.errors == ()


def _sample(second: int = 0) -> HardwareSample:
    engine = ProcessSample("engine-0", 7, 100, 90, 1.23456, 8)
    gpu = GpuSample(0, "H200", "GPU-0", 1000, 250, None, 60.0, 350.5, None)
    return HardwareSample(1_700_000_000.0 + second, _HOST, (engine,), (gpu,))


def test_host_process_and_device_share_the_columns(path: Path) -> None:
    SampleFile(path, max_bytes=10**6).append(_sample())
    host, process, gpu = _rows(path)
    assert [row["kind"] for row in (host, process, gpu)] == ["host", "process", "gpu"]
    assert (process["name"], process["pid"], process["busy"]) == ("engine-0", "7", "1.2346")
    assert process["memory_proportional_bytes"] == "90"
    assert (gpu["name"], gpu["busy"], gpu["power_watts"]) == ("0", "", "350.5")
    assert gpu["memory_total_bytes"] == host["memory_total_bytes"] == "1000"


def test_the_files_never_take_more_than_twice_the_bound(path: Path) -> None:
    bound = 4096
    file = SampleFile(path, max_bytes=bound)
    for second in range(200):
        file.append(_sample(second))
    files = sorted(path.parent.iterdir())
    assert files == [path, path.with_name("hardware.csv.1")]
    assert all(0 < file.stat().st_size <= bound for file in files)
    assert all(row["kind"] for file in files for row in _rows(file))
    assert _rows(path)[-1]["time"] == "2023-11-14T22:16:39.000Z"


def test_half_a_row_of_a_dead_process_stays_alone(path: Path) -> None:
    file = SampleFile(path, max_bytes=10**6)
    file.append(_sample())
    with path.open("a") as stream:
        stream.write("2023-11-14T22:13:21.0")
    file.append(_sample(2))
    assert [row["kind"] for row in _rows(path)][-3:] == ["host", "process", "gpu"]


def test_a_file_with_other_columns_is_put_aside(path: Path) -> None:
    path.parent.mkdir()
    path.write_text("timestamp,index\n1,2\n")
    SampleFile(path, max_bytes=10**6).append(_sample())
    assert path.with_name("hardware.csv.1").read_text() == "timestamp,index\n1,2\n"
    assert len(_rows(path)) == 3


def test_the_file_may_be_moved_away_between_samples(path: Path) -> None:
    file = SampleFile(path, max_bytes=10**6)
    file.append(_sample())
    path.rename(path.with_name("kept.csv"))
    file.append(_sample(1))
    assert len(_rows(path)) == 3


async def test_the_driver_is_let_go_when_sampling_ends(
    clock: VirtualClock, metrics: Metrics
) -> None:
    class Gpus:
        is_open = True

        def sample(self) -> tuple[GpuSample, ...]:
            raise OSError("NVML: GPU is lost")

        def close(self) -> None:
            self.is_open = False

    gpus: GpuProbe = Gpus()
    sampler = HardwareSampler(
        clock=clock, metrics=metrics, processes=ProcessProbe(dict), gpus=gpus, host=CalmHost()
    )
    sample = await sampler.sample_once()
    assert sample.errors == ("gpu",)
    task = asyncio.create_task(sampler.run())
    await asyncio.sleep(0)
    task.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await task
    assert isinstance(gpus, Gpus)
    assert not gpus.is_open
