"""Fixtures of the command line's tests."""

import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from .stage import Stage


@pytest.fixture
def stage() -> Iterator[Stage]:
    """A fresh stage in a short path, because sockets need one; nothing it started stays."""
    with tempfile.TemporaryDirectory(prefix="cli-") as folder:
        stage = Stage(Path(folder))
        yield stage
        stage.clear()
