"""Real services: the installed command, SmolLM2-135M, compiled kernels, a free port.

The service that is only asked is shared by all tests; the one that tests are rough with is not.
"""

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.cli.stage import REAL, Command, Stage

MODEL = "smol"
"""The name served; as long as the one in `tests.gateway.bad_requests`, which it replaces."""

START_LIMIT_S = 300.0
"""Seconds on a quiet machine; the first start ever compiles the kernels."""


class Service(Command):
    """A running service of the real model."""

    @property
    def url(self) -> str:
        return f"http://{self.host}:{self.port}"

    host = "127.0.0.1"


@contextmanager
def serving(cache_dir: Path, model: Path, *arguments: str) -> Iterator[Service]:
    """A service, from its banner to its end."""
    with tempfile.TemporaryDirectory(prefix="acc-") as folder:
        stage = Stage(Path(folder), {"STEELYARD_CACHE_DIR": str(cache_dir)})
        sets = (f"served_name={MODEL}", "engine.context_tokens=2048", *arguments)
        started = stage.start(
            "serve", str(model), "--port=0", *(f"--set={text}" for text in sets), program=REAL
        )
        service = Service(started.process, stage.folder / "0.out", stage.folder / "0.err")
        try:
            service.await_stderr("address  http://", limit_s=START_LIMIT_S)
            yield service
        finally:
            stage.clear()


@pytest.fixture(scope="session")
def service(cache_dir: Path, smollm2_path: Path) -> Iterator[Service]:
    """Stays sound, whatever it is asked."""
    with serving(cache_dir, smollm2_path) as running:
        engine = running.engine_pid
        yield running
        assert running.engine_pid == engine, "no request may cost the engine its life"
        assert running.stop() == 0
        assert "Traceback" not in running.stderr


@pytest.fixture(scope="module")
def rough_service(cache_dir: Path, smollm2_path: Path) -> Iterator[Service]:
    """Gives up on a silent engine after three seconds."""
    with serving(cache_dir, smollm2_path, "gateway.stall_timeout_s=3") as running:
        yield running
