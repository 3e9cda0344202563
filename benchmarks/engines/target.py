"""What a scenario puts load on: a server behind its socket, or the bare loop in its own process."""

import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import IO, Protocol

import msgspec
from benchmarks.engines.jobs import ClientReport, Job, Worker
from benchmarks.engines.process_tree import ProcessTree
from benchmarks.engines.server import Server, clean_environment

__all__ = ["BareTarget", "ClientProcess", "ServedTarget", "Target"]

_ROOT = Path(__file__).parents[2]


class Target(Protocol):
    """Takes load; stands still between `pause` and `resume`."""

    @property
    def key(self) -> str: ...
    @property
    def tree(self) -> ProcessTree: ...
    def run(self, workers: Sequence[Worker]) -> ClientReport: ...
    def pause(self) -> None: ...
    def resume(self) -> None: ...
    def stop(self) -> None: ...


class _JsonLines:
    """A child process that answers each line with one line."""

    def __init__(self, arguments: Sequence[str]) -> None:
        command = [sys.executable, "-m", *arguments]
        self._process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            cwd=_ROOT,
            env=clean_environment(),
        )
        self.pid = self._process.pid

    def ask(self, job: Job) -> ClientReport:
        stdin = self._pipe(self._process.stdin)
        stdin.write(msgspec.json.encode(job) + b"\n")
        stdin.flush()
        return msgspec.json.decode(self.read_line(), type=ClientReport)

    def read_line(self) -> bytes:
        line = self._pipe(self._process.stdout).readline()
        if not line:
            raise RuntimeError(f"{self._process.args!r} ended with {self._process.wait()}")
        return line

    def stop(self) -> None:
        self._pipe(self._process.stdin).close()
        self._process.wait()

    @staticmethod
    def _pipe(pipe: IO[bytes] | None) -> IO[bytes]:
        assert pipe is not None
        return pipe


class ClientProcess:
    """The load generator; serves one job at a time."""

    def __init__(self) -> None:
        self._process = _JsonLines(["benchmarks.engines.client"])

    def run(self, job: Job) -> ClientReport:
        return self._process.ask(job)

    def stop(self) -> None:
        self._process.stop()


class ServedTarget:
    """A server that has been started."""

    def __init__(self, server: Server, client: ClientProcess) -> None:
        self.server = server
        self._client = client

    @property
    def key(self) -> str:
        return self.server.engine.key

    @property
    def tree(self) -> ProcessTree:
        return self.server.tree

    def run(self, workers: Sequence[Worker]) -> ClientReport:
        engine = self.server.engine
        job = Job(self.server.port, list(workers), engine.model, dict(engine.extra))
        return self._client.run(job)

    def pause(self) -> None:
        self.server.pause()

    def resume(self) -> None:
        self.server.resume()

    def stop(self) -> None:
        self.server.stop()


class BareTarget:
    """Our engine without process borders and door. Returns once the model is loaded."""

    def __init__(self, key: str, model: Path, settings: Sequence[str]) -> None:
        self.key = key
        sets = [argument for text in settings for argument in ("--set", text)]
        self._process = _JsonLines(["benchmarks.engines.bare_loop", str(model), *sets])
        self.tree = ProcessTree(self._process.pid)
        self._process.read_line()

    def run(self, workers: Sequence[Worker]) -> ClientReport:
        return self._process.ask(Job(port=0, workers=list(workers), model=""))

    def pause(self) -> None:
        self.tree.pause()

    def resume(self) -> None:
        self.tree.resume()

    def stop(self) -> None:
        self.resume()
        self._process.stop()
