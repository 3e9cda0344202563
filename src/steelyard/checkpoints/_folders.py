"""Writing below the cache folder: space, permissions and one writer at a time.

Puts the operating system's errors into our tree, naming the folder and what to change.
"""

import errno
import fcntl
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from steelyard.checkpoints.progress import PullProgress, Report
from steelyard.contract.errors import CheckpointError

__all__ = ["locked", "opened_for_writing", "require_space", "synced", "writing_below"]

_OTHER_FOLDER = "or choose another folder with --cache-dir or STEELYARD_CACHE_DIR"
_MARGIN_BYTES = 16 * 1024 * 1024


@contextmanager
def writing_below(folder: Path) -> Iterator[None]:
    """Translate errors of writing into `CheckpointError`."""
    try:
        yield
    except OSError as error:
        raise _translated(error, folder) from error


def require_space(folder: Path, needed_bytes: int) -> None:
    """Fail before a download that cannot fit, not after most of it."""
    free_bytes = shutil.disk_usage(folder).free
    if free_bytes < needed_bytes + _MARGIN_BYTES:
        raise CheckpointError(
            f"{needed_bytes / 1e6:,.0f} MB are needed and {free_bytes / 1e6:,.0f} MB are free",
            param=str(folder),
            fix=f"free space there, {_OTHER_FOLDER}",
        )


@contextmanager
def locked(path: Path, report: Report) -> Iterator[None]:
    """Hold an exclusive lock, waiting for the process that has it; freed if this one dies."""
    with opened_for_writing(path, append=True) as descriptor:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            report(PullProgress("waiting"))
            fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield


@contextmanager
def opened_for_writing(path: Path, *, append: bool) -> Iterator[int]:
    """A descriptor of a regular file; a symbolic link in its place is refused, not followed."""
    flags = os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW
    descriptor = os.open(path, flags | (os.O_APPEND if append else os.O_TRUNC), 0o644)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def synced(path: Path) -> None:
    """Have a file's bytes on the disk before its name says that it is complete."""
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _translated(error: OSError, folder: Path) -> CheckpointError:
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return CheckpointError(
            "the disk is full", param=str(folder), fix=f"free space there, {_OTHER_FOLDER}"
        )
    if error.errno in (errno.EACCES, errno.EPERM, errno.EROFS):
        return CheckpointError(
            "this user may not read and write there",
            param=str(folder),
            fix=f"change its permissions, {_OTHER_FOLDER}",
        )
    return CheckpointError(
        f"cannot be written: {error.strerror or error}",
        param=str(error.filename or folder),
        fix=f"check the path, {_OTHER_FOLDER}",
    )
