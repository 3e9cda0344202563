"""Changes the file of API keys: adds an entry, takes one out.

The file is replaced whole, by renaming, so that a door that reads it meanwhile sees it before or
after the change and nothing between. People may write into it as well: comments stay where they
are, and what cannot be read is reported and left alone. Reading it for requests is `api_keys`' and
`watched_file`'s business.
"""

import contextlib
import fcntl
import os
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

from steelyard.contract.errors import NotFound, SettingsError
from steelyard.gateway.auth.api_keys import KeyEntry, entry_line, parse_keys

__all__ = ["add_key", "read_keys", "revoke_key"]

_SETTING = "gateway.auth.keys_file"
_PRIVATE_MODE = 0o600


def read_keys(path: Path) -> list[KeyEntry]:
    """Entries in the file's order. Raises `SettingsError` when it cannot be read."""
    with _errors_of(path):
        return list(parse_keys(path.read_bytes()).values())


def add_key(path: Path, entry: KeyEntry) -> None:
    """Append the entry; a file that is not there is made, readable for this user alone.

    Raises `SettingsError` when it cannot be changed, or has the key already.
    """

    def added(before: bytes) -> bytes:
        if entry.id in parse_keys(before):
            raise ValueError(f"it has a key {entry.id} already")
        gap = b"" if not before or before.endswith(b"\n") else b"\n"
        return before + gap + entry_line(entry).encode()

    _change(path, added, may_create=True)


def revoke_key(path: Path, key_id: str) -> KeyEntry:
    """Take the entry out and return it. Raises `NotFound` when there is none of this id, and
    `SettingsError` when the file cannot be changed."""
    found: list[KeyEntry] = []

    def without(before: bytes) -> bytes:
        entry = parse_keys(before).get(key_id)
        if entry is None:
            raise NotFound(f"{path} has no key {key_id}", fix="see `steelyard keys list`")
        found.append(entry)
        lines = before.splitlines(keepends=True)
        return b"".join(line for line in lines if key_id not in parse_keys(line))

    _change(path, without, may_create=False)
    return found[0]


def _change(path: Path, changed: Callable[[bytes], bytes], *, may_create: bool) -> None:
    with _errors_of(path), _locked(path, may_create=may_create) as (before, mode):
        data = changed(before)
        parse_keys(data)  # what is written can be read again
        _replace(path, data, mode)


@contextlib.contextmanager
def _locked(path: Path, *, may_create: bool) -> Iterator[tuple[bytes, int]]:
    """Content and mode of the file, which no other command changes meanwhile."""
    flags = os.O_RDWR | (os.O_CREAT if may_create else 0)
    while True:
        with os.fdopen(os.open(path, flags, _PRIVATE_MODE), "rb") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            here = os.fstat(file.fileno())
            if not _is_still(path, here):
                continue  # replaced while we waited: what we have locked is its past
            yield file.read(), here.st_mode & 0o777
            return


def _is_still(path: Path, opened: os.stat_result) -> bool:
    with contextlib.suppress(FileNotFoundError):
        return os.path.samestat(path.stat(), opened)
    return False


def _replace(path: Path, data: bytes, mode: int) -> None:
    target = path.resolve()  # a link stays a link
    descriptor, name = tempfile.mkstemp(prefix=f".{target.name}.", dir=target.parent)
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(data)
            os.fchmod(file.fileno(), mode)
            file.flush()
            os.fsync(file.fileno())
        Path(name).replace(target)
    except BaseException:
        Path(name).unlink()
        raise


@contextlib.contextmanager
def _errors_of(path: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise SettingsError(
            f"{path} cannot be used: {error.strerror or error}",
            param=_SETTING,
            fix="name a file that this user can read and write",
        ) from error
    except ValueError as error:
        raise SettingsError(f"{path}: {error}", param=_SETTING) from error
