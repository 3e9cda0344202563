"""Appends samples to a CSV file that spreadsheets, pandas and DuckDB read as it is.

One row per host, process and device and sample, with the same columns for all, so that a file
stays valid when a process or a device comes or goes. Two files at most: the file and `<name>.1`.
"""

import csv
import datetime
import io
from collections.abc import Iterator
from dataclasses import astuple, dataclass, fields
from pathlib import Path

from steelyard.telemetry.hardware import HardwareSample

__all__ = ["COLUMNS", "SampleFile", "SampleRow"]


@dataclass(frozen=True, slots=True)
class SampleRow:
    """One line. An empty cell (None) means that the subject has no such value."""

    time: str
    """ISO 8601, UTC, milliseconds."""
    kind: str
    """`host`, `process` or `gpu`."""
    name: str
    """Of a process its role, of a device its index; empty for the host."""
    pid: int | None = None
    memory_used_bytes: int | None = None
    """Of a process its RSS."""
    memory_total_bytes: int | None = None
    memory_proportional_bytes: int | None = None
    """Of a process its PSS."""
    busy: float | None = None
    """Host and device: share from 0 to 1. Process: processors kept busy."""
    temperature_celsius: float | None = None
    power_watts: float | None = None
    clock_hertz: float | None = None


COLUMNS = tuple(field.name for field in fields(SampleRow))


class SampleFile:
    """An append-only CSV file of bounded size. Opens the file for every sample and keeps nothing
    open, so that it may be moved away or deleted at any time."""

    def __init__(self, path: Path, max_bytes: int) -> None:
        self._path = path
        self._max_bytes = max_bytes

    def create(self) -> None:
        """Have an empty file unless there is one; `OSError` when it could not be written to."""
        self._path.parent.mkdir(parents=True, exist_ok=True)
        self._path.open("a").close()

    def append(self, sample: HardwareSample) -> None:
        """Write the sample's rows; `OSError` when the disk does not take them."""
        text = io.StringIO()
        writer = csv.writer(text, lineterminator="\n")
        writer.writerows(astuple(row) for row in _rows(sample))
        self._make_room(len(text.getvalue()))
        with self._path.open("a", encoding="utf-8", newline="") as file:
            if file.tell() == 0:
                file.write(",".join(COLUMNS) + "\n")
            elif not self._ends_a_line():
                file.write("\n")  # a former process died in the middle of a row
            file.write(text.getvalue())

    def _make_room(self, more_bytes: int) -> None:
        """Start a new file when this one is full, or was written with other columns."""
        try:
            size_bytes = self._path.stat().st_size
        except FileNotFoundError:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            return
        if size_bytes and (size_bytes + more_bytes > self._max_bytes or not self._has_columns()):
            self._path.replace(self._path.with_name(self._path.name + ".1"))

    def _has_columns(self) -> bool:
        with self._path.open(encoding="utf-8", errors="replace") as file:
            return file.readline(1024).rstrip("\n") == ",".join(COLUMNS)

    def _ends_a_line(self) -> bool:
        with self._path.open("rb") as file:
            file.seek(-1, io.SEEK_END)
            return file.read(1) == b"\n"


def _rows(sample: HardwareSample) -> Iterator[SampleRow]:
    moment = datetime.datetime.fromtimestamp(sample.unix_s, datetime.UTC)
    time = moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")
    if (host := sample.host) is not None:
        yield SampleRow(
            time,
            "host",
            "",
            memory_used_bytes=host.memory_bytes - host.memory_available_bytes,
            memory_total_bytes=host.memory_bytes,
            busy=_rounded(host.cpu_busy_ratio),
        )
    for process in sample.processes:
        yield SampleRow(
            time,
            "process",
            process.role,
            pid=process.pid,
            memory_used_bytes=process.resident_bytes,
            memory_proportional_bytes=process.proportional_bytes,
            busy=_rounded(process.cpu_cores),
        )
    for gpu in sample.gpus:
        yield SampleRow(
            time,
            "gpu",
            str(gpu.index),
            memory_used_bytes=gpu.memory_used_bytes,
            memory_total_bytes=gpu.memory_bytes,
            busy=_rounded(gpu.busy_ratio),
            temperature_celsius=gpu.temperature_celsius,
            power_watts=gpu.power_watts,
            clock_hertz=gpu.clock_hertz,
        )


def _rounded(value: float | None) -> float | None:
    return None if value is None else round(value, 4)
