"""Opening and reading the files of a model, with the operating system's errors put into our tree.

Knows nothing about formats.
"""

import json
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO

from steelyard.contract.errors import CheckpointError

__all__ = ["damaged", "opened", "read_json"]

_FETCH_AGAIN = "fetch the model again, or check where this copy came from"


def damaged(path: Path, what: str) -> CheckpointError:
    """The error for a file that is not what it should be. The caller raises it."""
    return CheckpointError(f"damaged or not valid: {what}", param=str(path), fix=_FETCH_AGAIN)


@contextmanager
def opened(path: Path) -> Iterator[tuple[BinaryIO, int]]:
    """The file opened for reading, and its size in bytes; refuses pipes and devices."""
    try:
        # Looked at before it is opened: opening a pipe would wait for its writer.
        if not stat.S_ISREG(path.stat().st_mode):
            raise CheckpointError("is not a regular file", param=str(path))
        with path.open("rb") as source:
            yield source, os.fstat(source.fileno()).st_size
    except OSError as error:
        raise CheckpointError(
            f"cannot be read: {error.strerror or error}",
            param=str(path),
            fix="check that the file exists and that this user may read it",
        ) from error


def read_json(path: Path, limit_bytes: int) -> dict[str, Any]:
    """A JSON object from a file of at most `limit_bytes`."""
    with opened(path) as (source, size_bytes):
        if size_bytes > limit_bytes:
            raise damaged(path, f"{size_bytes} bytes, more than the limit of {limit_bytes}")
        body = source.read(limit_bytes)
    try:
        value = json.loads(body)
    except (ValueError, RecursionError) as error:
        raise damaged(path, f"no JSON: {error}") from error
    if not isinstance(value, dict):
        raise damaged(path, "should hold a JSON object")
    return value
