"""A file whose newest readable content counts: read at the start, and again after every change.

A change that cannot be read keeps what was there before and is reported, so that a slip of an
editor locks nobody out. Looking costs one `stat`; replacing a file by renaming is seen as well as
writing into it.
"""

import asyncio
import logging
from collections.abc import Callable
from pathlib import Path
from typing import Generic, TypeVar

from steelyard.contract import Clock
from steelyard.contract.errors import SettingsError

__all__ = ["WatchedFile"]

_log = logging.getLogger(__name__)

_MAX_BYTES = 32 * 1024**2
"""A hundred thousand keys; anything larger is another file by mistake."""

ContentT = TypeVar("ContentT")

_Stamp = tuple[int, int, int]


class WatchedFile(Generic[ContentT]):
    """`parse` turns the file's bytes into `content`, or raises `ValueError` that says what is
    wrong without quoting the file. `setting` is the key that names the file."""

    def __init__(self, path: Path, parse: Callable[[bytes], ContentT], *, setting: str) -> None:
        """Reads the file. Raises `SettingsError` when that cannot be done."""
        self._path = path
        self._parse = parse
        self._setting = setting
        self._stamp = _stamp(path)
        self.content = self._read()
        self.error: str | None = None
        """Why the newest change does not count; None when it does."""

    async def run(self, clock: Clock, every_s: float, on_change: Callable[[bool], None]) -> None:
        """Look every `every_s`; `on_change` hears whether what was found could be read."""
        while True:
            await clock.sleep(every_s)
            stamp = _stamp(self._path)
            if stamp != self._stamp:
                self._stamp = stamp
                on_change(await self._read_again())

    async def _read_again(self) -> bool:
        try:
            # In a thread: parsing a large file would hold up every stream.
            content = await asyncio.to_thread(self._read)
        except SettingsError as error:
            self.error = error.message
            _log.error("%s: %s; what it said before stays in force", self._path, error.message)
            return False
        self.content, self.error = content, None
        _log.info("%s has changed and was read again", self._path)
        return True

    def _read(self) -> ContentT:
        try:
            with self._path.open("rb") as stream:
                data = stream.read(_MAX_BYTES + 1)
            if len(data) > _MAX_BYTES:
                raise ValueError(f"the file is larger than {_MAX_BYTES >> 20} MiB")
            return self._parse(data)
        except OSError as error:
            reason = f"{self._path} cannot be read: {error.strerror or error}"
            raise SettingsError(
                reason, param=self._setting, fix="name a file that this user can read"
            ) from error
        except ValueError as error:
            raise SettingsError(
                f"{self._path}: {error}", param=self._setting, fix="correct that line"
            ) from error


def _stamp(path: Path) -> _Stamp | None:
    """Changes whenever the file does; None when there is none."""
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_mtime_ns, found.st_size, found.st_ino
