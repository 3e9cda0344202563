"""Mocks in processes of their own, and the command as users run it, but inside this process."""

import dataclasses
import re
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from click.testing import Result
from typer.testing import CliRunner

from steelyard.cli.main import app
from steelyard.lab.mock import RequestTruth, read_truth

__all__ = ["Mock", "bench"]

_STEELYARD = [sys.executable, "-m", "steelyard.cli"]


@dataclasses.dataclass(frozen=True)
class Mock:
    """Where it is, and what it will say was true."""

    url: str
    process: "subprocess.Popen[str]"
    truth_file: Path

    def truth(self) -> list[RequestTruth]:
        """Every request; ends the mock."""
        self.process.send_signal(signal.SIGTERM)
        self.process.wait(timeout=20)
        return read_truth(self.truth_file)[1]


def bench(*arguments: str) -> Result:
    """`steelyard bench` with these arguments."""
    return CliRunner().invoke(app, ["bench", *map(str, arguments)], env={"COLUMNS": "140"})


@pytest.fixture
def mock_process(tmp_path: Path) -> Iterator[Callable[..., Mock]]:
    """Starts mocks; keywords are keys of their configuration."""
    started: list[Mock] = []

    def start(**keys: object) -> Mock:
        truth = tmp_path / f"truth-{len(started)}.jsonl"
        mock = start_mock_process(truth, keys)
        started.append(mock)
        return mock

    yield start
    for mock in started:
        mock.process.kill()
        mock.process.wait()


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Mock]:
    """One mock for all tests of a module."""
    folder = tmp_path_factory.mktemp("mock")
    mock = start_mock_process(folder / "truth.jsonl", {"ttft_ms": "gamma:30,0.1", "itl_ms": 3})
    yield mock
    mock.process.kill()
    mock.process.wait()


def start_mock_process(truth: Path, keys: dict[str, object]) -> Mock:
    flags = [f"--{name.replace('_', '-')}={value}" for name, value in keys.items()]
    command = [*_STEELYARD, "mock", "--port=0", f"--truth={truth}", *flags]
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
    assert process.stderr is not None
    found = re.search(r"ready at (http://\S+)/v1", process.stderr.readline())
    assert found
    return Mock(found[1], process, truth)
