"""Takes a sample of the machine every second and gives it to whoever keeps it.

Decides when, and that a failing part never stops the others or the service; `hardware` and `gpu`
read, `metrics` and `sample_file` keep.
"""

import asyncio
import dataclasses
import logging
import time
from collections.abc import Awaitable, Callable

import psutil

from steelyard.contract import Clock
from steelyard.telemetry.gpu import GpuProbe
from steelyard.telemetry.hardware import (
    GpuSample,
    HardwareSample,
    HostProbe,
    HostSample,
    ProcessProbe,
)
from steelyard.telemetry.metrics import Metrics
from steelyard.telemetry.sample_file import SampleFile

__all__ = ["HardwareSampler"]

_LOG = logging.getLogger(__name__)


class HardwareSampler:
    """Reads in a thread, because PSS of a large process takes milliseconds; keeps in the loop."""

    def __init__(
        self,
        *,
        clock: Clock,
        metrics: Metrics,
        processes: ProcessProbe,
        gpus: GpuProbe,
        every_s: float = 1.0,
        file: SampleFile | None = None,
        host: HostProbe | None = None,
        unix_time: Callable[[], float] = time.time,
        in_thread: Callable[[Callable[[], HardwareSample]], Awaitable[HardwareSample]] = (
            asyncio.to_thread
        ),
    ) -> None:
        """`file` None: metrics only. `host` None: this machine."""
        self._clock = clock
        self._metrics = metrics
        self._host = host or HostProbe()
        self._processes = processes
        self._gpus = gpus
        self._every_s = every_s
        self._file = file
        self._unix_time = unix_time
        self._in_thread = in_thread
        self._is_file_failing = False

    async def run(self) -> None:
        """Sample until cancelled, on a fixed beat; beats that passed meanwhile are left out."""
        due_s = self._clock.now()
        try:
            while True:
                await self.sample_once()
                behind_s = max(self._clock.now() - due_s, 0.0)
                due_s += self._every_s * (behind_s // self._every_s + 1)
                await self._clock.sleep(due_s - self._clock.now())
        finally:
            self._gpus.close()

    async def sample_once(self) -> HardwareSample:
        """One sample, taken, kept and returned. Never raises for what cannot be read."""
        sample = await self._in_thread(self._read_and_write)
        self._metrics.observe_hardware(sample)
        return sample

    def _read_and_write(self) -> HardwareSample:
        sample = self._read()
        if self._file is None or self._write(self._file, sample):
            return sample
        return dataclasses.replace(sample, errors=(*sample.errors, "file"))

    def _read(self) -> HardwareSample:
        errors: list[str] = []
        host: HostSample | None = None
        gpus: tuple[GpuSample, ...] = ()
        try:
            host = self._host.sample()
        except (OSError, psutil.Error) as error:
            _LOG.debug("the host cannot be sampled: %s", error)
            errors.append("host")
        try:
            gpus = self._gpus.sample()
        except OSError as error:
            _LOG.debug("devices cannot be sampled: %s", error)
            errors.append("gpu")
        processes = self._processes.sample()
        return HardwareSample(self._unix_time(), host, processes, gpus, tuple(errors))

    def _write(self, file: SampleFile, sample: HardwareSample) -> bool:
        try:
            file.append(sample)
        except OSError as error:
            if not self._is_file_failing:  # once, not every second of a full disk
                _LOG.warning("samples cannot be written: %s", error)
            self._is_file_failing = True
            return False
        self._is_file_failing = False
        return True
