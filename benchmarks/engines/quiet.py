"""Phases of silence on a machine that others use too.

While a phase lasts a file exists; others who agreed to look at it wait until it is gone. A phase
begins when the machine has become idle and ends, between two measurements, once it has lasted long
enough; then the others get their turn.
"""

import sys
import time
from pathlib import Path

from benchmarks.engines.machine import wait_until_idle

__all__ = ["QuietPhases"]

_IDLE_LIMIT_S = 240.0


class QuietPhases:
    """Call `check` between measurements, when nothing of one's own is running."""

    def __init__(self, file: Path | None, *, phase_s: float = 540.0, pause_s: float = 90.0) -> None:
        """`file` None: nobody is asked to wait, and phases never end."""
        self._file = file
        self._phase_s = phase_s
        self._pause_s = pause_s
        self._since_s: float | None = None

    def check(self) -> None:
        """Begin a phase, or give others their turn first where one has lasted long enough."""
        if self._since_s is not None:
            if self._file is None or time.monotonic() - self._since_s < self._phase_s:
                return
            self.end()
            print(f"others have their turn for {self._pause_s:.0f} s", file=sys.stderr)
            time.sleep(self._pause_s)
        self._begin()

    def end(self) -> None:
        """Safe to repeat."""
        if self._file is not None and self._since_s is not None:
            self._file.unlink(missing_ok=True)
        self._since_s = None

    def _begin(self) -> None:
        while not self._claim():
            time.sleep(1.0)  # somebody else measures
        self._since_s = time.monotonic()
        if not wait_until_idle(_IDLE_LIMIT_S):
            print("the machine does not become idle; measuring nevertheless", file=sys.stderr)

    def _claim(self) -> bool:
        if self._file is None:
            return True
        try:
            self._file.touch(exist_ok=False)
        except FileExistsError:
            return False
        return True
