"""Fixtures of the tests of batches."""

from collections.abc import Iterator
from pathlib import Path

import openai
import pytest

from ..conftest import OpenDoor
from ..doors import Door
from .shelf import batching, client_of


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "batches"


@pytest.fixture
def door(folder: Path, make_door: OpenDoor) -> Door:
    """A door that keeps batches, before an engine that answers at once."""
    return make_door(batching(folder))


@pytest.fixture
def client(door: Door) -> Iterator[openai.OpenAI]:
    with client_of(door) as client:
        yield client
