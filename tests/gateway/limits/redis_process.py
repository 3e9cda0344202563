"""A Redis server of a test's own, on a socket file."""

import contextlib
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from steelyard.gateway.limits.config import RedisConfig

__all__ = ["RedisProcess", "redis_process"]

_PROGRAM = shutil.which("redis-server")


class RedisProcess:
    """Can be killed and started again, empty."""

    def __init__(self, folder: Path) -> None:
        self.path = folder / "redis.sock"
        self._process: subprocess.Popen[bytes] | None = None

    def config(self, **changes: object) -> RedisConfig:
        # Generous: the machine that tests may be busy with others.
        return RedisConfig(url=f"unix://{self.path}", timeout_s=2.0, **changes)  # type: ignore[arg-type]

    def start(self) -> None:
        assert _PROGRAM is not None
        command = [_PROGRAM, "--port", "0", "--unixsocket", str(self.path), "--save", ""]
        self._process = subprocess.Popen(
            command, cwd=self.path.parent, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )
        end_s = time.monotonic() + 10
        while not self.path.exists():
            assert time.monotonic() < end_s, "the server does not start"
            time.sleep(0.01)

    def kill(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait()
        self.path.unlink(missing_ok=True)


@contextlib.contextmanager
def redis_process() -> Iterator[RedisProcess]:
    """A running server; skips the test where there is no Redis."""
    if _PROGRAM is None:
        pytest.skip("redis-server is not installed")
    with tempfile.TemporaryDirectory(prefix="redis-") as folder:
        server = RedisProcess(Path(folder))
        server.start()
        try:
            yield server
        finally:
            server.kill()
