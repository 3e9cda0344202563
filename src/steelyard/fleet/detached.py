"""Engine processes that outlive whoever started them, and are found again.

A detached process writes its log and its last report to files, because a pipe would break with its
reader. Whoever starts next looks into the ledger first: a live process with the same configuration
is taken over as it is, model and caches loaded. Ends are noticed through a pidfd, which works for
children and strangers alike.
"""

import asyncio
import contextlib
import hashlib
import os
import signal
import subprocess
from pathlib import Path

import psutil

from steelyard.contract.errors import EngineFailed
from steelyard.fleet.exits import ProcessExit, process_exit
from steelyard.fleet.ledger import Ledger, ProcessRecord
from steelyard.fleet.process import ProcessCommand

__all__ = ["DetachedLauncher", "DetachedProcess", "Places"]

_TAIL_BYTES = 16 * 1024
_TAIL_LINES = 40
_POLL_S = 0.1


class Places:
    """Where a replica's files are."""

    def __init__(self, folder: Path, name: str) -> None:
        self.log = folder / f"{name}.log"
        """Its standard error, appended to over all its processes."""
        self.report = folder / f"{name}.report"
        """The standard output of the newest process."""

    def tail(self) -> list[str]:
        """The newest lines of the log, oldest first."""
        try:
            with self.log.open("rb") as log:
                log.seek(max(self.log.stat().st_size - _TAIL_BYTES, 0))
                return log.read().decode(errors="replace").splitlines()[-_TAIL_LINES:]
        except OSError:
            return []


class DetachedLauncher:
    """`fleet.process.Launcher` for a replica whose process is taken over if it is there."""

    def __init__(self, name: str, command: ProcessCommand, places: Places, ledger: Ledger) -> None:
        self._name = name
        self._command = command
        self._places = places
        self._ledger = ledger
        self._digest = hashlib.sha256(command.stdin).hexdigest()[:16]

    async def launch(self) -> "DetachedProcess":
        """See `Launcher.launch`. The first call may find the process that was there before."""
        record = self._ledger.process(self._name)
        if record is not None and record.is_alive():
            if record.digest == self._digest:
                return DetachedProcess(self._name, record.pid, self._places, None)
            await _end(record.pid)
        process = self._spawn()
        started_s = psutil.Process(process.pid).create_time()
        record = ProcessRecord(process.pid, started_s, self._digest)
        self._ledger.note_process(self._name, record)
        return DetachedProcess(self._name, process.pid, self._places, process)

    def _spawn(self) -> "subprocess.Popen[bytes]":
        try:
            with self._places.log.open("ab") as log, self._places.report.open("wb") as report:
                process = subprocess.Popen(  # noqa: S603 (the command is the operator's own)
                    self._command.argv,
                    stdin=subprocess.PIPE,
                    stdout=report,
                    stderr=log,
                    start_new_session=True,
                )
        except OSError as error:
            raise EngineFailed(f"cannot start a process: {error.strerror}") from error
        pipe = process.stdin
        assert pipe is not None
        # A configuration is smaller than a pipe's buffer, so this does not wait for the process.
        with contextlib.suppress(BrokenPipeError), pipe:
            pipe.write(self._command.stdin)
        return process


class DetachedProcess:
    """A process that may or may not be our child."""

    def __init__(
        self,
        name: str,
        pid: int,
        places: Places,
        child: "subprocess.Popen[bytes] | None",
    ) -> None:
        """`child` None: it was started by a predecessor of ours."""
        self._name = name
        self._pid = pid
        self._places = places
        self._child = child

    @property
    def pid(self) -> int:
        """See `RunningProcess.pid`."""
        return self._pid

    @property
    def tail(self) -> list[str]:
        """See `RunningProcess.tail`."""
        return self._places.tail()

    def terminate(self) -> None:
        """See `RunningProcess.terminate`."""
        self._signal(signal.SIGTERM)

    def kill(self) -> None:
        """See `RunningProcess.kill`."""
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self._pid, signal.SIGKILL)

    async def wait(self) -> ProcessExit:
        """See `RunningProcess.wait`."""
        await _wait_gone(self._pid)
        code = None if self._child is None else await asyncio.to_thread(self._child.wait)
        try:
            report = self._places.report.read_bytes()
        except OSError:
            report = b""
        return process_exit(code, name=self._name, pid=self._pid, report=report, tail=self.tail)

    def _signal(self, number: int) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.kill(self._pid, number)


async def _end(pid: int) -> None:
    """End a process whose configuration is not ours any more, in order."""
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, signal.SIGTERM)
    await _wait_gone(pid)


async def _wait_gone(pid: int) -> None:
    """Return once a process has ended, whoever its parent is."""
    try:
        descriptor = os.pidfd_open(pid)
    except ProcessLookupError:
        return
    except (AttributeError, OSError):  # not Linux, or not allowed
        while psutil.pid_exists(pid):
            await asyncio.sleep(_POLL_S)
        return
    loop = asyncio.get_running_loop()
    ended = asyncio.Event()
    loop.add_reader(descriptor, ended.set)
    try:
        await ended.wait()
    finally:
        loop.remove_reader(descriptor)
        os.close(descriptor)
