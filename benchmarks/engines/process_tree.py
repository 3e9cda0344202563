"""A process with all its descendants: stop and continue, CPU time, memory.

Memory is reported twice. `pss_bytes` is the kernel's proportional set size. But the kernel divides
a shared page by all processes that map it, those outside the tree included: a second server of the
same kind, merely stopped, would make both look smaller. `alone_bytes` counts what the tree would
have if nothing else mapped its files: every mapped file once, at the most any process of the tree
has of it, and all that is anonymous.
"""

import contextlib
import re
import signal
from collections import defaultdict
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path

import psutil

__all__ = ["MemoryUse", "ProcessTree", "parse_smaps"]

_MAPPING = re.compile(r"^[0-9a-f]+-[0-9a-f]+ \S+ \S+ (\S+) (\d+)")
_COUNT = re.compile(r"^(\w+):\s+(\d+) kB")
_KIB = 1024


@dataclass(frozen=True, slots=True)
class MemoryUse:
    """Of a whole tree, in bytes."""

    pss_bytes: int
    alone_bytes: int
    rss_bytes: int
    """Plain sum over processes: counts shared pages several times, as `top` does."""


@dataclass(frozen=True, slots=True)
class _Maps:
    """One process's memory in kB."""

    pss: int
    rss: int
    anonymous: int
    """Memory without a file: all of what only this process has, and its part of what it shares."""
    by_file: dict[str, int]
    """Device and inode → resident."""


class ProcessTree:
    """Found anew at every call, because servers start helpers at any time."""

    def __init__(self, pid: int) -> None:
        self._root = psutil.Process(pid)

    def pause(self) -> None:
        """Parents first, so that nobody misses a child."""
        self._signal(signal.SIGSTOP, lambda processes: processes)

    def resume(self) -> None:
        self._signal(signal.SIGCONT, lambda processes: reversed(processes))

    def kill(self) -> None:
        self._signal(signal.SIGKILL, lambda processes: processes)

    def cpu_s(self) -> float:
        """CPU seconds so far, of processes that live and of children that were waited for."""
        total = 0.0
        for process in self._processes():
            with contextlib.suppress(psutil.NoSuchProcess):
                times = process.cpu_times()
                total += times.user + times.system
                total += times.children_user + times.children_system
        return total

    def threads(self) -> int:
        """Of all processes together."""
        return sum(process.num_threads() for process in self._processes())

    def memory(self) -> MemoryUse:
        """Reads every mapping of every process: takes some milliseconds."""
        maps = []
        for process in self._processes():
            with contextlib.suppress(FileNotFoundError, ProcessLookupError):
                maps.append(parse_smaps(Path(f"/proc/{process.pid}/smaps").read_text()))
        largest: dict[str, int] = defaultdict(int)
        for one in maps:
            for file, resident in one.by_file.items():
                largest[file] = max(largest[file], resident)
        alone = sum(largest.values()) + sum(one.anonymous for one in maps)
        return MemoryUse(
            pss_bytes=_KIB * sum(one.pss for one in maps),
            alone_bytes=_KIB * alone,
            rss_bytes=_KIB * sum(one.rss for one in maps),
        )

    def _processes(self) -> list[psutil.Process]:
        return [self._root, *self._root.children(recursive=True)]

    def _signal(
        self,
        number: signal.Signals,
        order: Callable[[list[psutil.Process]], Iterable[psutil.Process]],
    ) -> None:
        try:
            processes = self._processes()
        except psutil.NoSuchProcess:
            return
        for process in order(processes):
            with contextlib.suppress(psutil.NoSuchProcess):
                process.send_signal(number)


def parse_smaps(text: str) -> _Maps:
    """Sum up one `/proc/PID/smaps`."""
    pss = rss = anonymous = 0
    by_file: dict[str, int] = defaultdict(int)
    file = ""
    mapping: dict[str, int] = {}

    def close() -> None:
        nonlocal anonymous
        if not mapping:
            return
        if file:
            # Pages of a private mapping that were written to have left the file.
            own = mapping.get("Anonymous", 0)
            anonymous += own
            by_file[file] += mapping["Rss"] - own
        else:
            anonymous += mapping["Pss"]

    for line in text.splitlines():
        if (start := _MAPPING.match(line)) is not None:
            close()
            mapping = {}
            device, inode = start.groups()
            file = f"{device}/{inode}" if inode != "0" else ""
        elif (count := _COUNT.match(line)) is not None:
            name, value = count.group(1), int(count.group(2))
            mapping[name] = value
            pss += value if name == "Pss" else 0
            rss += value if name == "Rss" else 0
    close()
    return _Maps(pss, rss, anonymous, dict(by_file))
