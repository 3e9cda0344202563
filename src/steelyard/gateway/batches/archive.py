"""Files and progress on disk, without keeping the event loop waiting.

    folder/ledger.sqlite   what is known (`ledger`), used by one thread
    folder/files/<id>      contents of files
    folder/incoming/       uploads and results being written; emptied at the start
    folder/lock            held as long as a service uses the folder

A file's content is complete on disk before the ledger names it, and is removed after the ledger
has forgotten it; what a crash leaves in between is removed at the next start.
"""

import asyncio
import fcntl
import os
import shutil
import sqlite3
import time
from collections import Counter
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from pathlib import Path
from typing import BinaryIO, Concatenate, ParamSpec, TypeVar

from msgspec.structs import replace

from steelyard.contract.errors import InternalError, RateLimited, SettingsError
from steelyard.gateway.batches.config import BatchesConfig
from steelyard.gateway.batches.ledger import Ledger, LineResult
from steelyard.gateway.batches.lines import (
    NumberedLine,
    Validation,
    numbered_lines,
    validate,
)
from steelyard.gateway.batches.objects import BatchObject, Ending, FileObject

__all__ = ["Archive", "new_id"]

P = ParamSpec("P")
T = TypeVar("T")

_CHUNK_BYTES = 256 * 1024

_UPLOADS = 4
"""Of one tenant at once, since files on their way count for nobody yet."""


def new_id(prefix: str) -> str:
    """One that nobody guesses."""
    return prefix + os.urandom(12).hex()


class Archive:
    """One folder. Methods raise `InternalError` when the disk fails."""

    def __init__(self, config: BatchesConfig) -> None:
        self.config = config
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="batches")
        self._ledger: Ledger | None = None
        self._lock: BinaryIO | None = None
        self._uploads: Counter[str] = Counter()
        """On their way now, by tenant."""

    async def startup(self) -> None:
        """Take the folder. Raises `SettingsError` when it cannot be had."""
        self._ledger = await self._in_thread(self._open)

    async def shutdown(self) -> None:
        """Let go of the folder. Safe to repeat."""
        if self._lock is not None:
            await self._in_thread(self._close)
            self._thread.shutdown(wait=False)

    async def call(
        self, method: Callable[Concatenate[Ledger, P], T], *args: P.args, **kwargs: P.kwargs
    ) -> T:
        """`Ledger.method(*args)`, in its thread."""
        return await self._in_thread(lambda: method(self._opened, *args, **kwargs))

    @asynccontextmanager
    async def incoming(self, tenant: str) -> AsyncIterator[BinaryIO]:
        """A file to write an upload to; gone afterwards unless `keep` has taken it.

        Raises `RateLimited` when the tenant has too many on their way.
        """
        if self._uploads[tenant] >= _UPLOADS:
            raise RateLimited(
                f"{_UPLOADS} uploads of this tenant are on their way",
                delay_s=5.0,
                fix="Retry when one has ended.",
            )
        self._uploads[tenant] += 1
        try:
            async with self._incoming() as file:
                yield file
        finally:
            self._uploads[tenant] -= 1
            if not self._uploads[tenant]:
                del self._uploads[tenant]

    @asynccontextmanager
    async def _incoming(self) -> AsyncIterator[BinaryIO]:
        path = self.config.folder / "incoming" / new_id("upload-")
        file = await self._off_loop(lambda: path.open("xb"))
        try:
            yield file
        finally:
            await self._off_loop(lambda: _discard(file, path))

    async def keep(
        self, content: BinaryIO, *, tenant: str, size: int, name: str, purpose: str
    ) -> FileObject:
        """Make a finished upload a file of the tenant's. Raises `InvalidRequest` when it has too
        many."""
        file = _file_object(new_id("file-"), size, name, purpose)
        await self._off_loop(lambda: self._place(content, file.id))
        try:
            await self.call(Ledger.add_file, tenant, file, self.config.tenant_bytes)
        except BaseException:
            await self._off_loop(lambda: self.path(file.id).unlink(missing_ok=True))
            raise
        return file

    async def remove(self, tenant: str, file_id: str) -> None:
        """Raises as `Ledger.remove_file`."""
        await self.call(Ledger.remove_file, tenant, file_id)
        await self._off_loop(lambda: self.path(file_id).unlink(missing_ok=True))

    async def content(self, file_id: str) -> AsyncGenerator[bytes, None]:
        """In pieces. The id must come from the ledger."""
        file = await self._off_loop(lambda: self.path(file_id).open("rb"))
        try:
            while part := await self._off_loop(lambda: file.read(_CHUNK_BYTES)):
                yield part
        finally:
            file.close()

    async def lines(self, file_id: str) -> AsyncIterator[NumberedLine]:
        """Of an input, a few read ahead."""
        source = numbered_lines(self.path(file_id), self.config.line_bytes)
        while lines := await self._off_loop(lambda: _some(source)):
            for line in lines:
                yield line

    async def validate(self, file_id: str, endpoint: str) -> Validation:
        """Judge a whole input."""
        config = self.config
        return await self._off_loop(
            lambda: validate(
                self.path(file_id),
                endpoint,
                line_bytes=config.line_bytes,
                max_lines=config.max_lines,
            )
        )

    def path(self, file_id: str) -> Path:
        """Where the content is. The id must come from the ledger."""
        return self.config.folder / "files" / file_id

    async def end_batch(
        self,
        batch_id: str,
        status: Ending,
        now: int,
        undone: Callable[[NumberedLine], LineResult] | None,
    ) -> None:
        """Write its files and its end, as one step. `undone` makes the results of lines that have
        none; None: every line has one."""
        await self._in_thread(lambda: self._end_batch(batch_id, status, now, undone))

    def _end_batch(
        self,
        batch_id: str,
        status: Ending,
        now: int,
        undone: Callable[[NumberedLine], LineResult] | None,
    ) -> None:
        ledger = self._opened
        batch = ledger.record(batch_id).batch
        if undone is not None:
            done = ledger.finished_lines(batch.id)
            source = numbered_lines(self.path(batch.input_file_id), self.config.line_bytes)
            ledger.add_results(batch.id, (undone(n) for n in source if n.number not in done))
        counts = ledger.counts(batch.id, batch.request_counts.total)
        output = self._write_results(batch, has_failed=False) if counts.completed else None
        errors = self._write_results(batch, has_failed=True) if counts.failed else None
        ended = replace(
            batch,
            status=status,
            request_counts=counts,
            output_file_id=output and output.id,
            error_file_id=errors and errors.id,
            completed_at=now if status == "completed" else None,
            expired_at=now if status == "expired" else None,
            cancelled_at=now if status == "cancelled" else None,
        )
        ledger.end(ended, [file for file in (output, errors) if file is not None])

    def _write_results(self, batch: BatchObject, *, has_failed: bool) -> FileObject:
        kind = "error" if has_failed else "output"
        path = self.config.folder / "incoming" / new_id("results-")
        with path.open("xb") as content:
            for record in self._opened.results(batch.id, has_failed=has_failed):
                content.write(record + b"\n")
            name = f"{batch.id}_{kind}.jsonl"
            file = _file_object(new_id("file-"), content.tell(), name, "batch_output")
            self._place(content, file.id)
        path.unlink()
        return file

    def _place(self, content: BinaryIO, file_id: str) -> None:
        """Make what was written durable, under its name."""
        content.flush()
        os.fsync(content.fileno())
        os.link(content.name, self.path(file_id))
        _sync_folder(self.path(file_id).parent)

    @property
    def _opened(self) -> Ledger:
        assert self._ledger is not None, "the archive is not open"
        return self._ledger

    def _open(self) -> Ledger:
        folder = self.config.folder
        try:
            for each in (folder, folder / "files", folder / "incoming"):
                each.mkdir(mode=0o700, parents=True, exist_ok=True)
            self._lock = (folder / "lock").open("wb")
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise SettingsError(
                f"{folder} is in use by another service",
                param="gateway.batches.folder",
                fix="give every service a folder of its own",
            ) from None
        except OSError as error:
            raise SettingsError(
                f"{folder} cannot be used: {error.strerror or error}",
                param="gateway.batches.folder",
                fix="name a folder that this user can write to",
            ) from error
        ledger = Ledger(folder / "ledger.sqlite")
        shutil.rmtree(folder / "incoming")
        (folder / "incoming").mkdir(mode=0o700)
        known = ledger.file_ids()
        for path in (folder / "files").iterdir():
            if path.name not in known:
                path.unlink()
        return ledger

    def _close(self) -> None:
        if self._ledger is not None:
            self._ledger.close()
            self._ledger = None
        if self._lock is not None:
            self._lock.close()
            self._lock = None

    async def _in_thread(self, work: Callable[[], T]) -> T:
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._thread, _translating(work))

    async def _off_loop(self, work: Callable[[], T]) -> T:
        return await asyncio.to_thread(_translating(work))


def _translating(work: Callable[[], T]) -> Callable[[], T]:
    def translated() -> T:
        try:
            return work()
        except (OSError, sqlite3.Error) as error:
            raise InternalError(f"the folder of batches failed: {error}") from error

    return translated


def _some(source: Iterator[NumberedLine]) -> list[NumberedLine]:
    lines: list[NumberedLine] = []
    size = 0
    for line in source:
        lines.append(line)
        size += len(line.raw)
        if size >= _CHUNK_BYTES:
            break
    return lines


def _file_object(file_id: str, size: int, name: str, purpose: str) -> FileObject:
    return FileObject(
        id=file_id, bytes=size, created_at=int(time.time()), filename=name, purpose=purpose
    )


def _discard(file: BinaryIO, path: Path) -> None:
    file.close()
    path.unlink(missing_ok=True)


def _sync_folder(folder: Path) -> None:
    """A new name is durable only once its folder is."""
    fd = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)
