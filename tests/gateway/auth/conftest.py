"""Fixtures of the tests of authentication."""

from pathlib import Path

import pytest

from .keyring import Keyring


@pytest.fixture
def keyring(tmp_path: Path) -> Keyring:
    return Keyring(tmp_path)
