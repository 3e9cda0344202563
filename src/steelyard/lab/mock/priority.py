"""Asks the kernel to run this process as soon as it wakes: most of a mock's lateness is waiting
for a processor that a client keeps busy.

Changes the whole process, so programs call it, not `server`.
"""

import contextlib
import os

__all__ = ["run_promptly"]


def run_promptly() -> str:
    """Become a real-time process where that exists and is allowed; "real-time" or "normal".

    The kernel still leaves a share of each second to others (`sched_rt_runtime_us`).
    """
    if hasattr(os, "sched_setscheduler"):
        with contextlib.suppress(OSError):
            os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(1))
            return "real-time"
    return "normal"
