"""Secrets live in files of their own; a bad one is refused without being shown."""

from pathlib import Path

import pytest

from steelyard.contract.errors import SettingsError
from steelyard.settings import read_secret


def test_a_secret_is_read_without_its_line_end(tmp_path: Path) -> None:
    file = tmp_path / "salt"
    file.write_bytes(b"0123456789abcdef\n")
    assert read_secret(str(file), key="kv_cache.salt_secret_file") == b"0123456789abcdef"


@pytest.mark.parametrize("content", [b"", b"short-secret", b"x" * 5000])
def test_a_secret_of_the_wrong_size_is_refused(tmp_path: Path, content: bytes) -> None:
    file = tmp_path / "salt"
    file.write_bytes(content)
    with pytest.raises(SettingsError) as refused:
        read_secret(str(file), key="kv_cache.salt_secret_file")
    assert refused.value.param == "kv_cache.salt_secret_file"
    assert "short-secret" not in str(refused.value)


def test_a_missing_secret_is_refused(tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match="cannot be read"):
        read_secret(str(tmp_path / "none"), key="kv_cache.salt_secret_file")
