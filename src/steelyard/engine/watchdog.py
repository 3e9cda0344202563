"""Ends this process when a step hangs or its parent is gone.

One thread looks a few times per second. A step's age is counted in looks, not in seconds, so a
process that was stopped and continued (SIGSTOP, a suspended laptop) is not taken for a hung one.
A hang that keeps the interpreter lock stops this thread as well; that, the parent sees from
outside, as a status query without an answer.
"""

import contextlib
import faulthandler
import logging
import os
import sys
import threading
import time

import psutil

from steelyard.engine.exit_codes import ExitCode

__all__ = ["StepAge", "Watchdog"]

_log = logging.getLogger(__name__)

_LOOK_S = 0.5
_LOOKS_PER_LIMIT = 8


class StepAge:
    """How many looks the running step has lasted. The loop writes, the watchdog looks."""

    def __init__(self) -> None:
        self.step = 0
        self.is_running = False
        self._seen_step = 0
        self._looks = 0

    def begin(self) -> None:
        self.step += 1
        self.is_running = True

    def end(self) -> None:
        self.is_running = False

    def look(self) -> int:
        """Looks since the first one at the step that runs now; 0 when none does."""
        step = self.step
        if not self.is_running or step != self._seen_step:
            self._seen_step = step
            self._looks = 0
        else:
            self._looks += 1
        return self._looks


class Watchdog:
    """Watches `age` against `limit_s`, and `parent_pid` (0: there is no parent to watch)."""

    def __init__(self, *, limit_s: float, parent_pid: int = 0) -> None:
        self.age = StepAge()
        self._limit_s = limit_s
        self._parent_pid = parent_pid
        self._look_s = min(_LOOK_S, limit_s / _LOOKS_PER_LIMIT)
        self._thread = threading.Thread(target=self._watch, name="watchdog", daemon=True)

    def start(self) -> None:
        """Begin to watch; the thread ends with the process."""
        self._thread.start()

    def _watch(self) -> None:
        while True:
            if self._parent_pid and os.getppid() != self._parent_pid:
                _log.error("the parent process %d is gone", self._parent_pid)
                _kill_helpers()
                _end(ExitCode.ORPHANED)
            if self.age.look() * self._look_s >= self._limit_s:
                _log.critical("step %d runs for more than %g s", self.age.step, self._limit_s)
                faulthandler.dump_traceback(file=sys.stderr, all_threads=True)
                _end(ExitCode.STALLED)
            time.sleep(self._look_s)


def _kill_helpers() -> None:
    """Compilers, if we are just building kernels; a parent that lives does this itself."""
    for child in psutil.Process().children(recursive=True):
        with contextlib.suppress(psutil.Error):
            child.kill()


def _end(code: ExitCode) -> None:
    # Not sys.exit: the main thread is stuck, or nobody is left to read what it would say.
    logging.shutdown()
    os._exit(code)
