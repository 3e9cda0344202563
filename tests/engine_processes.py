"""Real engine processes with the fake runner, for tests that are about processes and sockets."""

import asyncio
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec
import pytest

from steelyard.contract import GenerateRequest, SamplingParams
from steelyard.engine.config import EngineConfig
from steelyard.engine.fake_runner import FakeModel

ENGINE = (sys.executable, "-P", "-m", "steelyard.engine.process")


@dataclass
class EngineFolder:
    """Where a test's engine has its socket and its model; short, as socket paths must be."""

    path: Path

    @property
    def address(self) -> str:
        return f"unix:{self.path}/engine.sock"

    @property
    def socket(self) -> Path:
        return self.path / "engine.sock"

    def config(self, model: FakeModel | None = None, **fields: Any) -> EngineConfig:
        """A configuration for the fake runner; the model is written to a file."""
        checkpoint = self.path / "model.json"
        checkpoint.write_bytes(msgspec.json.encode(model or FakeModel()))
        settings = {"listen": self.address, "checkpoint": str(checkpoint), **fields}
        return EngineConfig(model="fake", runner="fake", **settings)


@pytest.fixture
def engine_folder() -> Iterator[EngineFolder]:
    """A fresh folder under the system's temporary one."""
    with tempfile.TemporaryDirectory(prefix="eng-") as path:
        yield EngineFolder(Path(path))


Start = Callable[[EngineConfig | bytes], "subprocess.Popen[bytes]"]


@pytest.fixture
def start_engine() -> Iterator[Start]:
    """Start an engine process; whatever is left of it is killed after the test."""
    started: list[subprocess.Popen[bytes]] = []

    def start(config: EngineConfig | bytes) -> "subprocess.Popen[bytes]":
        process = subprocess.Popen(
            ENGINE,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            start_new_session=True,
        )
        started.append(process)
        assert process.stdin is not None
        process.stdin.write(config if isinstance(config, bytes) else msgspec.json.encode(config))
        process.stdin.close()
        # `communicate` would write to it again.
        process.stdin = None
        return process

    yield start
    for process in started:
        process.kill()
        process.communicate()


def make_request(
    request_id: str = "r", *, prompt: tuple[int, ...] = (1, 2, 3), max_tokens: int = 8, **more: Any
) -> GenerateRequest:
    """A small valid request."""
    sampling = SamplingParams(max_tokens=max_tokens, temperature=0.0, ignore_eos=True)
    return GenerateRequest(request_id=request_id, prompt_ids=prompt, sampling=sampling, **more)


def wait_until(holds: Callable[[], bool], *, limit_s: float = 5.0) -> float:
    """Seconds until `holds()`; fails the test when it takes too long."""
    started_s = time.monotonic()
    while not holds():
        assert time.monotonic() - started_s < limit_s, "waited in vain"
        time.sleep(0.01)
    return time.monotonic() - started_s


async def wait_until_async(holds: Callable[[], bool], *, limit_s: float = 5.0) -> float:
    """As `wait_until`, inside an event loop."""
    started_s = time.monotonic()
    while not holds():
        assert time.monotonic() - started_s < limit_s, "waited in vain"
        await asyncio.sleep(0.01)
    return time.monotonic() - started_s
