"""What a sample of the machine holds, and the probes that read host and processes.

`gpu` reads devices, `sampler` decides when, `sample_file` and `metrics` keep the values. Reading
never raises: what cannot be read is None, or absent, and counted.
"""

import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path

import psutil

__all__ = [
    "GpuSample",
    "HardwareSample",
    "HostProbe",
    "HostSample",
    "ProcessProbe",
    "ProcessSample",
]


@dataclass(frozen=True, slots=True)
class HostSample:
    """The machine as a whole."""

    memory_bytes: int
    memory_available_bytes: int
    swap_used_bytes: int
    cpus: int
    cpu_busy_ratio: float | None
    """Busy share of all processors since the last sample; None in the first."""


@dataclass(frozen=True, slots=True)
class ProcessSample:
    """One of our processes."""

    role: str
    """What it is to us: `gateway`, `engine-0`."""
    pid: int
    resident_bytes: int
    proportional_bytes: int | None
    """PSS; None where the system does not tell."""
    cpu_cores: float | None
    """Processors kept busy since the last sample; None in the first."""
    threads: int


@dataclass(frozen=True, slots=True)
class GpuSample:
    """One device. None: this device or driver does not tell."""

    index: int
    name: str
    uuid: str
    memory_bytes: int | None
    memory_used_bytes: int | None
    busy_ratio: float | None
    temperature_celsius: float | None
    power_watts: float | None
    clock_hertz: float | None


@dataclass(frozen=True, slots=True)
class HardwareSample:
    """Everything at one moment."""

    unix_s: float
    host: HostSample | None
    """None when the system could not be read."""
    processes: tuple[ProcessSample, ...]
    """Those that are alive."""
    gpus: tuple[GpuSample, ...]
    errors: tuple[str, ...] = ()
    """What failed: `host`, `gpu` or `file`."""


class HostProbe:
    """Reads memory and processor time of the machine."""

    def __init__(self) -> None:
        self._last: tuple[float, float] | None = None

    def sample(self) -> HostSample:
        """Raises `OSError` when the system's tables cannot be read."""
        memory, swap = psutil.virtual_memory(), psutil.swap_memory()
        return HostSample(
            memory_bytes=memory.total,
            memory_available_bytes=memory.available,
            swap_used_bytes=swap.used,
            cpus=psutil.cpu_count() or 1,
            cpu_busy_ratio=self._busy_ratio(),
        )

    def _busy_ratio(self) -> float | None:
        times = psutil.cpu_times()
        total_s = sum(times) - getattr(times, "guest", 0.0) - getattr(times, "guest_nice", 0.0)
        idle_s = times.idle + getattr(times, "iowait", 0.0)
        last, self._last = self._last, (total_s, idle_s)
        if last is None or total_s <= last[0]:
            return None
        return min(max(1.0 - (idle_s - last[1]) / (total_s - last[0]), 0.0), 1.0)


class ProcessProbe:
    """Reads memory and processor time of the processes that a callable names, by role.

    Roles stay while pids change: an engine that was started again is the same series.
    """

    def __init__(
        self,
        pids: Callable[[], dict[str, int]],
        *,
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        self._pids = pids
        self._now = now
        self._processes: dict[str, psutil.Process] = {}
        self._last: dict[str, tuple[float, float]] = {}
        """Per role: when its processor time was read, and what it was."""

    def sample(self) -> tuple[ProcessSample, ...]:
        """Those that are alive and ours to read."""
        pids = self._pids()
        for role in self._processes.keys() - pids.keys():
            self._forget(role)
        return tuple(self._alive(pids.items()))

    def _alive(self, pids: Iterable[tuple[str, int]]) -> Iterable[ProcessSample]:
        for role, pid in pids:
            try:
                yield self._read(role, self._process(role, pid))
            except (psutil.Error, OSError):
                self._forget(role)

    def _process(self, role: str, pid: int) -> psutil.Process:
        process = self._processes.get(role)
        if process is None or process.pid != pid or not process.is_running():
            self._forget(role)
            process = self._processes[role] = psutil.Process(pid)
        return process

    def _read(self, role: str, process: psutil.Process) -> ProcessSample:
        with process.oneshot():
            times = process.cpu_times()
            return ProcessSample(
                role=role,
                pid=process.pid,
                resident_bytes=process.memory_info().rss,
                proportional_bytes=_proportional_bytes(process.pid),
                cpu_cores=self._cores(role, times.user + times.system),
                threads=process.num_threads(),
            )

    def _cores(self, role: str, cpu_s: float) -> float | None:
        now_s = self._now()
        last = self._last.get(role)
        self._last[role] = (now_s, cpu_s)
        if last is None or now_s <= last[0]:
            return None
        return max((cpu_s - last[1]) / (now_s - last[0]), 0.0)

    def _forget(self, role: str) -> None:
        self._processes.pop(role, None)
        self._last.pop(role, None)


def _proportional_bytes(pid: int) -> int | None:
    """The `Pss` line of `smaps_rollup` (proc(5)); None without one."""
    try:
        text = Path(f"/proc/{pid}/smaps_rollup").read_text(encoding="ascii")
    except OSError:
        return None
    for line in text.splitlines():
        if line.startswith("Pss:"):
            return int(line.split()[1]) * 1024
    return None
