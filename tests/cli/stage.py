"""Where commands are run as a user runs them: real processes, files and signals."""

import contextlib
import http.client
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec
import psutil

from steelyard.engine.fake_runner import FakeModel
from tests.checkpoints.builders import tiny_vocabulary, write_gguf

__all__ = [
    "FAKE",
    "REAL",
    "ROOT",
    "Command",
    "Stage",
    "Stream",
    "ask",
    "is_gone",
    "wait_for",
    "words_of",
]

ROOT = Path(__file__).parents[2]
REAL = (str(Path(sys.executable).with_name("steelyard")),)
FAKE = (sys.executable, "-m", "tests.cli.fake_command")
"""With engine processes that make tokens up (`fake_command`)."""


def wait_for(claim: Callable[[], object], *, limit_s: float = 20.0) -> None:
    """Return once `claim()` holds; fails the test when it takes too long."""
    end_s = time.monotonic() + limit_s
    while not claim():
        assert time.monotonic() < end_s, "waited in vain"
        time.sleep(0.01)


def is_gone(pid: int) -> bool:
    """True when the process is dead, whether or not its parent has noticed."""
    with contextlib.suppress(psutil.NoSuchProcess):
        return psutil.Process(pid).status() == psutil.STATUS_ZOMBIE
    return True


def ask(
    port: int,
    path: str,
    body: Mapping[str, Any] | None = None,
    credentials: str | None = None,
) -> tuple[int, Any]:
    """Ask a server on this machine: status and body, decoded unless it is no JSON."""
    with contextlib.closing(_connect(port)) as connection:
        status, _, text = _exchange(connection, path, body, credentials)
    with contextlib.suppress(ValueError):
        return status, json.loads(text)
    return status, text


class Command:
    """A running command; what it prints goes to files, so that it never waits for us."""

    def __init__(self, process: "subprocess.Popen[bytes]", out: Path, err: Path) -> None:
        self.process = process
        self._out = out
        self._err = err

    @property
    def stdout(self) -> str:
        return self._out.read_text()

    @property
    def stderr(self) -> str:
        return self._err.read_text()

    @property
    def pid(self) -> int:
        return self.process.pid

    def wait(self, *, limit_s: float = 30.0) -> int:
        """Its exit status; −n when signal n killed it."""
        try:
            return self.process.wait(limit_s)
        except subprocess.TimeoutExpired:
            raise AssertionError(f"it does not end:\n{self.stderr}") from None

    def send(self, number: int) -> None:
        self.process.send_signal(number)

    def stop(self, *, limit_s: float = 30.0) -> int:
        """Ask it to end; its exit status."""
        self.send(signal.SIGTERM)
        return self.wait(limit_s=limit_s)

    def await_stderr(self, text: str, *, limit_s: float = 30.0) -> None:
        """Return once it has printed `text` there; fails the test when it ends before."""

        def is_there() -> bool:
            ended = self.process.poll() is not None
            if text in self.stderr:
                return True
            assert not ended, f"it ended with {self.process.returncode}:\n{self.stderr}"
            return False

        wait_for(is_there, limit_s=limit_s)

    # What only services have.

    @property
    def port(self) -> int:
        """Read from the banner; waits for it."""
        self.await_stderr("address  http://")
        line = next(line for line in self.stderr.splitlines() if "address  http://" in line)
        return int(line.removesuffix("/v1").rpartition(":")[2])

    @property
    def engine_pid(self) -> int:
        """Of the engine process that runs now; waits for one."""
        found: list[int] = []

        def is_there() -> bool:
            children = psutil.Process(self.pid).children(recursive=True)
            found[:] = [c.pid for c in children if "steelyard.engine.process" in words_of(c)]
            return bool(found)

        wait_for(is_there)
        return found[0]

    def ask(
        self, path: str, body: Mapping[str, Any] | None = None, credentials: str | None = None
    ) -> tuple[int, Any]:
        """Status and decoded body of one answer; text when it is no JSON."""
        return ask(self.port, path, body, credentials)

    def metric(self, series: str) -> float:
        """The value of one series of `/metrics`; 0 when it is not there."""
        _, text = self.ask("/metrics")
        for line in text.splitlines():
            if line.startswith(f"{series} "):
                return float(line.rpartition(" ")[2])
        return 0.0

    def is_ready(self) -> bool:
        return self.ask("/readiness")[0] == 200

    def stream(self, **fields: Any) -> "Stream":
        """Begin a streamed completion of 10 tokens, unless `fields` say otherwise."""
        return Stream(self.port, fields)


class Stream:
    """An answer that comes as events."""

    def __init__(self, port: int, fields: Mapping[str, Any]) -> None:
        self._connection = _connect(port)
        usual = {
            "model": "tiny",
            "prompt": "hello",
            "max_tokens": 10,
            "ignore_eos": True,
            "stream": True,
        }
        _send(self._connection, "/v1/completions", {**usual, **fields})
        self._answer = self._connection.getresponse()
        assert self._answer.status == 200, self._answer.read()

    def __iter__(self) -> Iterator[Any]:
        """Events, decoded, until the stream ends; `[DONE]` is one."""
        for line in self._answer:
            if line.startswith(b"data: "):
                data = line.removeprefix(b"data: ").strip()
                yield "[DONE]" if data == b"[DONE]" else json.loads(data)

    def first(self) -> Any:
        """The next event."""
        return next(iter(self))

    def close(self) -> None:
        """Hang up."""
        # The answer has a reference of its own to the socket.
        self._answer.close()
        self._connection.close()


@dataclass
class Stage:
    """A folder of its own, for one test: temporary files, a tiny model, and what commands print."""

    folder: Path
    variables: dict[str, str] = field(default_factory=dict)
    """Environment, besides the test's own without its settings of steelyard."""
    commands: list[Command] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.temporary = self.folder / "t"
        self.temporary.mkdir()
        self.cache = self.folder / "c"
        self.model = write_gguf(self.folder / "tiny.gguf")
        self.fake_model()

    def fake_model(self, **fields: Any) -> Path:
        """Describe what fake engine processes do, from their next start on."""
        vocab_size = len(tiny_vocabulary()[0])
        model = FakeModel(vocab_size=vocab_size, end_token_id=2, **fields)
        path = self.folder / "fake.json"
        path.write_bytes(msgspec.json.encode(model))
        return path

    @property
    def environment(self) -> dict[str, str]:
        inherited = {k: v for k, v in os.environ.items() if not k.startswith("STEELYARD_")}
        return {
            **inherited,
            "TMPDIR": str(self.temporary),
            "STEELYARD_CACHE_DIR": str(self.cache),
            "FAKE_MODEL": str(self.folder / "fake.json"),
            **self.variables,
        }

    def start(
        self,
        *arguments: str,
        program: tuple[str, ...] = FAKE,
        stdin: bytes | None = b"",
        **options: Any,
    ) -> Command:
        """Start a command. `stdin` None: closed."""
        number = len(self.commands)
        out, err = self.folder / f"{number}.out", self.folder / f"{number}.err"
        source = self.folder / f"{number}.in"
        source.write_bytes(stdin or b"")
        with source.open("rb") as given, out.open("wb") as to_out, err.open("wb") as to_err:
            process = subprocess.Popen(
                [*program, *arguments],
                cwd=ROOT,
                env=self.environment,
                stdin=given,
                stdout=to_out,
                stderr=to_err,
                **({} if stdin is not None else {"preexec_fn": _close_stdin}),
                **options,
            )
        command = Command(process, out, err)
        self.commands.append(command)
        return command

    def run(self, *arguments: str, limit_s: float = 60.0, **options: Any) -> Command:
        """Run a command to its end."""
        command = self.start(*arguments, **options)
        command.wait(limit_s=limit_s)
        return command

    def serve(self, *arguments: str, **options: Any) -> Command:
        """Start a service of the tiny model on a free port."""
        return self.start("serve", str(self.model), "--port", "0", *arguments, **options)

    @property
    def leftovers(self) -> list[str]:
        """What commands have left among the temporary files."""
        return sorted(path.name for path in self.temporary.iterdir())

    def clear(self) -> None:
        """End whatever still runs."""
        for command in self.commands:
            if command.process.poll() is None:
                family = [command.process, *psutil.Process(command.pid).children(recursive=True)]
                for process in family:
                    with contextlib.suppress(psutil.NoSuchProcess):
                        process.kill()
                command.process.wait()


def words_of(process: psutil.Process) -> list[str]:
    """Its command line; empty when it is gone."""
    with contextlib.suppress(psutil.Error):
        return process.cmdline()
    return []


def _close_stdin() -> None:
    os.close(0)


def _connect(port: int) -> http.client.HTTPConnection:
    return http.client.HTTPConnection("127.0.0.1", port, timeout=30)


def _send(
    connection: http.client.HTTPConnection,
    path: str,
    body: Mapping[str, Any] | None,
    credentials: str | None = None,
) -> None:
    headers = {} if credentials is None else {"authorization": f"Bearer {credentials}"}
    if body is None:
        connection.request("GET", path, headers=headers)
    else:
        headers["content-type"] = "application/json"
        connection.request("POST", path, json.dumps(body), headers)


def _exchange(
    connection: http.client.HTTPConnection,
    path: str,
    body: Mapping[str, Any] | None,
    credentials: str | None,
) -> tuple[int, Mapping[str, str], str]:
    _send(connection, path, body, credentials)
    answer = connection.getresponse()
    return answer.status, dict(answer.headers), answer.read().decode()
