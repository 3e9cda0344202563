"""The machine: facts for the record, and how much of it others used while we measured."""

import os
import platform
import re
import subprocess
import time
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

import msgspec

__all__ = ["CpuMeter", "Facts", "Usage", "describe_machine", "wait_until_idle"]


class Facts(msgspec.Struct, frozen=True):
    """What a reader needs to judge a number. Holds no host name and no paths."""

    date: str
    commit: str
    """With `+changes` when the working tree differs from it."""
    cpu_model: str
    cpus: int
    caches: dict[str, str]
    memory_gib: float
    kernel: str
    hypervisor: bool
    huge_pages: str
    """Of transparent huge pages: the kernel's setting."""
    python: str
    versions: dict[str, str] = {}
    """Of what was measured and of what it is built on."""


@dataclass(frozen=True, slots=True)
class Usage:
    """Shares of all the machine's CPU time within a span, in [0, 1]."""

    busy: float
    stolen: float
    """Taken by the hypervisor."""


class CpuMeter:
    """Opened at the start of a span; `read` at its end."""

    def __init__(self) -> None:
        self.cpus = os.cpu_count() or 1
        self._busy, self._stolen, self._all = _cpu_ticks()

    def read(self) -> Usage:
        """Since the meter was made."""
        busy, stolen, total = _cpu_ticks()
        span = max(total - self._all, 1)
        return Usage((busy - self._busy) / span, (stolen - self._stolen) / span)


def wait_until_idle(limit_s: float, *, busy_share: float = 0.10, window_s: float = 1.5) -> bool:
    """True once the machine was nearly idle for one window; False when it never was."""
    give_up_s = time.monotonic() + limit_s
    while time.monotonic() < give_up_s:
        meter = CpuMeter()
        time.sleep(window_s)
        usage = meter.read()
        if usage.busy + usage.stolen < busy_share:
            return True
    return False


def describe_machine(versions: dict[str, str]) -> Facts:
    """Read everything but `versions` from the system."""
    cpuinfo = Path("/proc/cpuinfo").read_text() if Path("/proc/cpuinfo").exists() else ""
    return Facts(
        date=datetime.now(UTC).isoformat(timespec="seconds"),
        commit=_commit(),
        cpu_model=_first(r"model name\s*: (.*)", cpuinfo) or platform.processor(),
        cpus=os.cpu_count() or 1,
        caches=_caches(),
        memory_gib=round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30, 1),
        kernel=f"{platform.system()} {platform.release()}",
        hypervisor=" hypervisor" in cpuinfo,
        huge_pages=_text("/sys/kernel/mm/transparent_hugepage/enabled"),
        python=platform.python_version(),
        versions=versions,
    )


def _cpu_ticks() -> tuple[int, int, int]:
    """Busy, stolen and all ticks of all processors."""
    fields = [int(field) for field in Path("/proc/stat").read_text().split("\n", 1)[0].split()[1:]]
    user, nice, system, idle, iowait, irq, softirq, steal = fields[:8]
    busy = user + nice + system + irq + softirq
    return busy, steal, busy + idle + iowait + steal


def _commit() -> str:
    def git(*arguments: str) -> str:
        command = ["git", "-C", str(Path(__file__).parent), *arguments]
        return subprocess.run(command, capture_output=True, text=True, check=False).stdout.strip()

    commit = git("rev-parse", "--short=12", "HEAD")
    # Only what the server is made of: a report under way is no change of it.
    return f"{commit}+changes" if git("status", "--porcelain", "--", ":/src") else commit


def _caches() -> dict[str, str]:
    """Of CPU 0: level and kind → size."""
    sizes = {}
    for index in sorted(Path("/sys/devices/system/cpu/cpu0/cache").glob("index*")):
        level, kind = _text(str(index / "level")), _text(str(index / "type"))
        sizes[f"L{level} {kind.lower()}"] = _text(str(index / "size"))
    return sizes


def _text(path: str) -> str:
    try:
        return Path(path).read_text().strip()
    except OSError:
        return "unknown"


def _first(pattern: str, text: str) -> str:
    found = re.search(pattern, text)
    return found.group(1).strip() if found else ""
