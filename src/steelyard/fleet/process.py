"""The one place of the fleet that touches operating-system processes.

A process gets its configuration on standard input and runs in a session of its own, so that
Ctrl-C in the terminal reaches only us, and killing it takes its helpers (compilers) along. Its
standard error goes to our log, and its last lines are kept for the error message; a report on
standard output says in our own words why it ended. When to start and stop is `fleet.lifecycle`'s
decision.
"""

import asyncio
import contextlib
import logging
import os
import signal
import subprocess
import sys
import threading
from collections import deque
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from typing import IO, Protocol, cast

import msgspec
import psutil

from steelyard.contract.errors import EngineFailed, SettingsError
from steelyard.engine.config import EngineConfig
from steelyard.fleet.exits import ProcessExit, process_exit

__all__ = [
    "Launcher",
    "LocalLauncher",
    "LocalProcess",
    "ProcessCommand",
    "RunningProcess",
    "engine_command",
]

_log = logging.getLogger(__name__)

_TAIL_LINES = 40
_LINE_BYTES = 4096
_REPORT_BYTES = 64 * 1024
_READ_BYTES = 64 * 1024
_LAST_WORDS_S = 1.0
"""A grandchild may hold the pipes open for ever; the exit is not kept waiting for longer."""


@dataclass(frozen=True, slots=True)
class ProcessCommand:
    """A program, its arguments, and what it reads on standard input."""

    argv: Sequence[str]
    stdin: bytes = b""


class RunningProcess(Protocol):
    """A process that was started; it may be gone already."""

    @property
    def pid(self) -> int | None:
        """None when it is no process of this machine."""
        ...

    @property
    def tail(self) -> list[str]:
        """The newest lines of its standard error, oldest first."""
        ...

    def terminate(self) -> None:
        """Ask it to end. Nothing happens when it is gone."""
        ...

    def kill(self) -> None:
        """End it, and the helpers it started, now. Nothing happens when it is gone."""
        ...

    async def wait(self) -> ProcessExit:
        """Return once it is gone; never before."""
        ...


class Launcher(Protocol):
    """Starts one replica's process, again and again."""

    async def launch(self) -> RunningProcess:
        """Start it. Raises `SettingsError` when that can never work, `EngineFailed` otherwise."""
        ...


def engine_command(config: EngineConfig, *, is_owned: bool = True) -> ProcessCommand:
    """How to start an engine process; one that `is_owned` does not outlive this process."""
    owned = msgspec.structs.replace(config, parent_pid=os.getpid() if is_owned else 0)
    # -P: the working directory must not be able to shadow modules.
    argv = (sys.executable, "-P", "-m", "steelyard.engine.process")
    return ProcessCommand(argv=argv, stdin=msgspec.json.encode(owned))


class LocalLauncher:
    """Starts `command` on this machine; `name` marks its lines in our log."""

    def __init__(self, name: str, command: ProcessCommand) -> None:
        self._name = name
        self._command = command

    async def launch(self) -> "LocalProcess":
        """See `Launcher.launch`."""
        try:
            process = subprocess.Popen(  # noqa: S603 (the command is the operator's own)
                self._command.argv,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                start_new_session=True,
            )
        except (FileNotFoundError, PermissionError, NotADirectoryError) as error:
            raise SettingsError(f"cannot run {self._command.argv[0]}: {error.strerror}") from error
        except OSError as error:
            raise EngineFailed(f"cannot start a process: {error.strerror}") from error
        return LocalProcess(self._name, process, self._command.stdin)


class LocalProcess:
    """A process of this machine; a thread waits for its end, two tasks read its pipes.

    Not `asyncio.subprocess`: its `wait` does not return while anybody, such as a compiler that the
    dead process had started, holds the pipes open.
    """

    def __init__(self, name: str, process: "subprocess.Popen[bytes]", stdin: bytes) -> None:
        self._name = name
        self._process = process
        self._tail: deque[str] = deque(maxlen=_TAIL_LINES)
        self._report = b""
        self._loop = asyncio.get_running_loop()
        self._ended: asyncio.Future[int] = self._loop.create_future()
        self._readers = [
            asyncio.ensure_future(self._relay_stderr()),
            asyncio.ensure_future(self._keep_report()),
        ]
        threading.Thread(
            target=self._attend, args=(stdin,), name=f"attend-{process.pid}", daemon=True
        ).start()

    @property
    def pid(self) -> int:
        """Of the process, and of the process group it leads."""
        return self._process.pid

    @property
    def tail(self) -> list[str]:
        """See `RunningProcess.tail`."""
        return list(self._tail)

    def terminate(self) -> None:
        """See `RunningProcess.terminate`."""
        self._process.terminate()

    def kill(self) -> None:
        """See `RunningProcess.kill`."""
        if self._process.returncode is None:
            self._kill_session()

    async def wait(self) -> ProcessExit:
        """See `RunningProcess.wait`."""
        code = await asyncio.shield(self._ended)
        # Helpers it left behind would go on for nobody.
        self._kill_session()
        await asyncio.wait(self._readers, timeout=_LAST_WORDS_S)
        for reader in self._readers:
            reader.cancel()
        return process_exit(
            code, name=self._name, pid=self.pid, report=self._report, tail=self._tail
        )

    def _attend(self, stdin: bytes) -> None:
        """Runs in a thread of its own, so it may block."""
        pipe = cast(IO[bytes], self._process.stdin)
        # A process that dies before it has read everything says why in its own words.
        with contextlib.suppress(BrokenPipeError), pipe:
            pipe.write(stdin)
        code = self._process.wait()
        # The event loop may be closed by now: then nobody waits.
        with contextlib.suppress(RuntimeError):
            self._loop.call_soon_threadsafe(self._ended.set_result, code)

    def _kill_session(self) -> None:
        """The process's group, and whoever has left it: ninja gives every compiler one of its own.

        Looks at all processes of the machine, a few microseconds each.
        """
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.pid, signal.SIGKILL)
        for pid in psutil.pids():
            with contextlib.suppress(ProcessLookupError, PermissionError):
                if os.getsid(pid) == self.pid:
                    os.kill(pid, signal.SIGKILL)

    async def _keep_report(self) -> None:
        async with _reading(self._process.stdout) as pipe:
            while data := await pipe.read(_READ_BYTES):
                self._report = (self._report + data)[-_REPORT_BYTES:]

    async def _relay_stderr(self) -> None:
        line = b""
        async with _reading(self._process.stderr) as pipe:
            while data := await pipe.read(_READ_BYTES):
                *lines, line = (line + data).split(b"\n")
                for complete in lines:
                    self._relay_line(complete)
                line = line[-_LINE_BYTES:]
        if line:
            self._relay_line(line)

    def _relay_line(self, line: bytes) -> None:
        text = line[:_LINE_BYTES].decode(errors="replace").rstrip()
        self._tail.append(text)
        level = logging.getLevelNamesMapping().get(text.partition(" ")[0], logging.INFO)
        _log.log(level, "%s: %s", self._name, text)


@contextlib.asynccontextmanager
async def _reading(pipe: IO[bytes] | None) -> AsyncIterator[asyncio.StreamReader]:
    reader = asyncio.StreamReader()
    transport, _ = await asyncio.get_running_loop().connect_read_pipe(
        lambda: asyncio.StreamReaderProtocol(reader), pipe
    )
    try:
        yield reader
    finally:
        transport.close()
