"""A `steelyard mock` in a process of its own, started and stopped by a benchmark."""

import contextlib
import json
import re
import signal
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

__all__ = ["RunningMock", "running_mock"]

_STEELYARD = Path(sys.executable).parent / "steelyard"


@dataclass(frozen=True)
class RunningMock:
    """Where the mock is, and the command that started it."""

    url: str
    """Without `/v1`."""
    command: list[str]
    pid: int

    @property
    def port(self) -> int:
        return int(self.url.rpartition(":")[2])

    def timing(self) -> dict[str, Any]:
        """Its own timing error so far, in milliseconds."""
        with urllib.request.urlopen(f"{self.url}/mock/timing", timeout=10) as answer:
            found: dict[str, Any] = json.load(answer)
            return found


@contextlib.contextmanager
def running_mock(**flags: object) -> Iterator[RunningMock]:
    """A mock with these keys of its configuration, on a free port."""
    options = [f"--{name.replace('_', '-')}={value}" for name, value in flags.items()]
    command = ["steelyard", "mock", "--port=0", *options]
    process = subprocess.Popen([str(_STEELYARD), *command[1:]], stderr=subprocess.PIPE, text=True)
    assert process.stderr is not None
    try:
        banner = process.stderr.readline()
        found = re.search(r"ready at (http://\S+)/v1", banner)
        if found is None:
            raise RuntimeError(f"the mock did not start: {banner}{process.stderr.read()}")
        yield RunningMock(found[1], command, process.pid)
    finally:
        process.send_signal(signal.SIGTERM)
        process.communicate(timeout=20)
