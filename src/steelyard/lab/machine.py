"""Watches the machine during a run: memory, processors, devices, power. Where the server runs on
this machine, its processes are found by the port they listen on.
"""

import asyncio
from collections.abc import Iterable
from typing import TypeVar

import psutil

from steelyard.lab.result import HardwareFacts
from steelyard.settings.hosts import is_loopback
from steelyard.telemetry import ProcessProbe, find_gpus
from steelyard.telemetry.gpu import GpuProbe
from steelyard.telemetry.hardware import GpuSample, HostProbe, HostSample, ProcessSample

__all__ = ["MachineWatch", "find_server_pid"]

_EVERY_S = 0.5

NumberT = TypeVar("NumberT", int, float)


class MachineWatch:
    """Samples until it is cancelled; `facts` sums up what it has seen. Never raises."""

    def __init__(self, server_pid: int | None, *, gpus: GpuProbe | None = None) -> None:
        """`server_pid` and its descendants are the server. None: it runs elsewhere.

        `gpus` None: those of this machine.
        """
        self._server_pid = server_pid
        self._gpus = gpus or find_gpus()
        self._host = HostProbe()
        self._processes = ProcessProbe(self._server_processes)
        self._hosts: list[HostSample] = []
        self._servers: list[tuple[ProcessSample, ...]] = []
        self._devices: list[tuple[GpuSample, ...]] = []

    async def run(self) -> None:
        """Sample in a thread, because reading the memory of large processes takes a while."""
        self.clear()
        try:
            while True:
                await asyncio.to_thread(self._sample)
                await asyncio.sleep(_EVERY_S)
        finally:
            self._gpus.close()

    def clear(self) -> None:
        """Forget what was seen before now."""
        for seen in (self._hosts, self._servers, self._devices):
            seen.clear()

    def facts(self) -> HardwareFacts:
        """Peaks and means."""
        memory = [sum(map(_memory_bytes, server)) for server in self._servers if server]
        cores = [
            sum(p.cpu_cores or 0.0 for p in server)
            for server in self._servers
            if any(p.cpu_cores is not None for p in server)
        ]
        watts = [_sum(device.power_watts for device in devices) for devices in self._devices]
        return HardwareFacts(
            host_cpu_busy=_mean([host.cpu_busy_ratio for host in self._hosts]),
            host_memory_used_peak_bytes=_peak(
                [host.memory_bytes - host.memory_available_bytes for host in self._hosts]
            ),
            server_memory_peak_bytes=_peak(memory),
            server_cpu_cores=_mean(cores),
            gpu_names=sorted({gpu.name for devices in self._devices for gpu in devices}),
            gpu_memory_used_peak_bytes=_peak(
                [_sum(gpu.memory_used_bytes for gpu in devices) for devices in self._devices]
            ),
            gpu_busy=_mean([gpu.busy_ratio for devices in self._devices for gpu in devices]),
            gpu_power_mean_watts=_mean(watts),
            gpu_power_peak_watts=_peak(watts),
            samples=len(self._hosts),
        )

    def _sample(self) -> None:
        try:
            self._hosts.append(self._host.sample())
            self._servers.append(self._processes.sample())
            if devices := self._gpus.sample():
                self._devices.append(devices)
        except (OSError, psutil.Error):
            return  # a moment that could not be read is a moment without a sample

    def _server_processes(self) -> dict[str, int]:
        if self._server_pid is None:
            return {}
        try:
            server = psutil.Process(self._server_pid)
            family = [server, *server.children(recursive=True)]
        except psutil.Error:
            return {}
        return {f"server-{process.pid}": process.pid for process in family}


def find_server_pid(host: str, port: int) -> int | None:
    """The process that listens on a port of this machine. None: elsewhere, or not ours to see."""
    if not is_loopback(host):
        return None
    try:
        connections = psutil.net_connections("tcp")
    except (psutil.Error, OSError):
        return None
    listening = (
        connection.pid
        for connection in connections
        if connection.status == psutil.CONN_LISTEN
        and getattr(connection.laddr, "port", None) == port
    )
    return next((pid for pid in listening if pid), None)


def _memory_bytes(process: ProcessSample) -> int:
    return process.proportional_bytes or process.resident_bytes


def _sum(values: Iterable[NumberT | None]) -> NumberT | None:
    """Of those that are known; None when none is."""
    known = [value for value in values if value is not None]
    return sum(known[1:], start=known[0]) if known else None


def _mean(values: Iterable[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return sum(known) / len(known) if known else None


def _peak(values: Iterable[NumberT | None]) -> NumberT | None:
    return max((value for value in values if value is not None), default=None)
