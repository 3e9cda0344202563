"""How many compute threads a process should use, and how numeric libraries are told.

OpenMP and MKL read their settings when torch is imported, so this runs before that; it imports
nothing that could import torch.
"""

import math
import os
from collections.abc import Iterable
from pathlib import Path

__all__ = ["resolve_threads", "thread_environment"]

_TOPOLOGY = Path("/sys/devices/system/cpu")
_CGROUP_QUOTA = Path("/sys/fs/cgroup/cpu.max")


def resolve_threads(requested: int) -> int:
    """`requested`, or for 0 one per physical core that affinity and the container's quota leave.

    Two threads on one core compete for the same vector units: that costs more than it brings.
    """
    if requested > 0:
        return requested
    return max(1, min(_physical_cores(_usable_cpus()), _quota_cores()))


def thread_environment(threads: int) -> dict[str, str]:
    """Variables to set before torch is imported."""
    count = str(threads)
    return {"OMP_NUM_THREADS": count, "MKL_NUM_THREADS": count, "OPENBLAS_NUM_THREADS": count}


def _usable_cpus() -> set[int]:
    if hasattr(os, "sched_getaffinity"):
        return os.sched_getaffinity(0)
    return set(range(os.cpu_count() or 1))


def _physical_cores(cpus: Iterable[int]) -> int:
    cores = set()
    for cpu in cpus:
        try:
            cores.add((_TOPOLOGY / f"cpu{cpu}/topology/thread_siblings_list").read_text())
        except OSError:
            # Not Linux, or a sandbox without /sys: every CPU counts as a core.
            cores.add(str(cpu))
    return len(cores)


def _quota_cores() -> int:
    """Whole cores the container may use; a large number when it is not limited."""
    try:
        quota, period = _CGROUP_QUOTA.read_text().split()
    except (OSError, ValueError):
        quota, period = "max", "1"
    return 1 << 20 if quota == "max" else max(1, math.floor(int(quota) / int(period)))
