"""What is known of files, batches and finished lines, in one SQLite database.

Every method is one transaction, so a process may die anywhere: a line's result is there once or
not at all, and a batch ends together with the rows of its files. Blocking, and for one thread;
`archive` calls it from there and keeps the files' contents.
"""

import sqlite3
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import msgspec
from msgspec.structs import replace

from steelyard.contract.errors import InvalidRequest, NotFound, RateLimited, SettingsError
from steelyard.gateway.batches.objects import (
    OPEN,
    BatchCounts,
    BatchErrors,
    BatchObject,
    BatchRecord,
    FileObject,
)

__all__ = ["Ledger", "LineResult", "Page"]

_VERSION = 1

_SCHEMA = """
CREATE TABLE files (
    seq INTEGER PRIMARY KEY AUTOINCREMENT, id TEXT NOT NULL UNIQUE, tenant TEXT NOT NULL,
    purpose TEXT NOT NULL, bytes INTEGER NOT NULL, record BLOB NOT NULL
);
CREATE INDEX files_of_tenant ON files (tenant, seq);
CREATE TABLE batches (
    seq INTEGER PRIMARY KEY AUTOINCREMENT, id TEXT NOT NULL UNIQUE, tenant TEXT NOT NULL,
    is_open INTEGER NOT NULL, input_file TEXT NOT NULL, record BLOB NOT NULL
);
CREATE INDEX batches_of_tenant ON batches (tenant, seq);
CREATE INDEX open_batches ON batches (tenant) WHERE is_open;
CREATE TABLE results (
    batch TEXT NOT NULL, line INTEGER NOT NULL, has_failed INTEGER NOT NULL, record BLOB NOT NULL,
    PRIMARY KEY (batch, line)
) WITHOUT ROWID;
"""

_LEAST_BYTES = 4096
"""What a small file counts for, as it takes so much of a disk: bounds their number, too."""


@dataclass(frozen=True, slots=True)
class LineResult:
    """What came of one line of a batch's input."""

    line: int
    """From 1, as editors count."""
    has_failed: bool
    record: bytes
    """The line for the output or error file, without its end."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Page:
    """Which part of a list a client wants."""

    limit: int
    after: str | None
    """Id of the last one seen; None begins at the beginning."""
    is_ascending: bool = False
    """Oldest first."""


class Ledger:
    """The database in one file."""

    def __init__(self, path: Path) -> None:
        """Raises `SettingsError` for a file of another version, or none of ours."""
        self._db = sqlite3.connect(path)
        try:
            self._db.execute("PRAGMA journal_mode = WAL")
            self._db.execute("PRAGMA synchronous = FULL")
            (version,) = self._db.execute("PRAGMA user_version").fetchone()
            if version == 0:
                self._db.executescript(
                    f"BEGIN; {_SCHEMA} PRAGMA user_version = {_VERSION}; COMMIT;"
                )
        except sqlite3.Error as error:
            self._db.close()
            raise SettingsError(
                f"{path} cannot be used: {error}", param="gateway.batches.folder"
            ) from error
        if version not in (0, _VERSION):
            self._db.close()
            raise SettingsError(
                f"{path} was written by another version of this program (format {version})",
                param="gateway.batches.folder",
                fix="name another folder",
            )

    def close(self) -> None:
        """Nothing may be called afterwards."""
        self._db.close()

    # Files.

    def add_file(self, tenant: str, file: FileObject, tenant_bytes: int) -> None:
        """Raises `InvalidRequest` when the tenant would hold more than `tenant_bytes`."""
        with self._db:
            (held,) = self._db.execute(
                "SELECT COALESCE(SUM(MAX(bytes, ?)), 0) FROM files WHERE tenant = ?",
                (_LEAST_BYTES, tenant),
            ).fetchone()
            if held + max(file.bytes, _LEAST_BYTES) > tenant_bytes:
                raise InvalidRequest(
                    f"the files of this tenant have {held} bytes, the limit is {tenant_bytes}",
                    param="file",
                    fix="Delete files that are no longer needed.",
                )
            self._insert_file(tenant, file)

    def file(self, tenant: str, file_id: str) -> FileObject:
        """Raises `NotFound`, also for other tenants' files."""
        row = self._db.execute(
            "SELECT record FROM files WHERE id = ? AND tenant = ?", (file_id, tenant)
        ).fetchone()
        if row is None:
            raise NotFound("there is no such file", param="file_id")
        return _FILE.decode(row[0])

    def files(self, tenant: str, purpose: str | None, page: Page) -> list[FileObject]:
        """One more than the page holds tells that there are more."""
        rows = self._rows("files", tenant, page, "AND (?4 IS NULL OR purpose = ?4)", purpose)
        return [_FILE.decode(row) for row in rows]

    def file_ids(self) -> set[str]:
        """Of everybody."""
        return {row[0] for row in self._db.execute("SELECT id FROM files")}

    def remove_file(self, tenant: str, file_id: str) -> None:
        """Raises `NotFound`, or `InvalidRequest` when a batch that has not ended reads it."""
        with self._db:
            self.file(tenant, file_id)
            user = self._db.execute(
                "SELECT id FROM batches WHERE is_open AND tenant = ? AND input_file = ?",
                (tenant, file_id),
            ).fetchone()
            if user is not None:
                raise InvalidRequest(
                    f"the file is the input of {user[0]}, which has not ended", param="file_id"
                )
            self._db.execute("DELETE FROM files WHERE id = ?", (file_id,))

    # Batches.

    def add_batch(self, record: BatchRecord, open_batches: int) -> None:
        """Raises `NotFound` without its input, `RateLimited` when as many as allowed are open."""
        with self._db:
            source = self.file(record.tenant, record.batch.input_file_id)
            if source.purpose != "batch":
                raise InvalidRequest(
                    f"the file's purpose is {source.purpose}, not batch", param="input_file_id"
                )
            (count,) = self._db.execute(
                "SELECT COUNT(*) FROM batches WHERE is_open AND tenant = ?", (record.tenant,)
            ).fetchone()
            if count >= open_batches:
                raise RateLimited(
                    f"{count} batches of this tenant have not ended, the limit is {open_batches}",
                    delay_s=60.0,
                    fix="Wait for one to end, or cancel one.",
                )
            self._db.execute(
                "INSERT INTO batches (id, tenant, is_open, input_file, record)"
                " VALUES (?, ?, 1, ?, ?)",
                (
                    record.batch.id,
                    record.tenant,
                    record.batch.input_file_id,
                    msgspec.json.encode(record),
                ),
            )

    def batch(self, tenant: str, batch_id: str) -> BatchObject:
        """With the counts of now. Raises `NotFound`, also for other tenants' batches."""
        return self._with_counts(self.record(batch_id, tenant).batch)

    def record(self, batch_id: str, tenant: str | None = None) -> BatchRecord:
        """`tenant` None: of whomever. Raises `NotFound`."""
        row = self._db.execute(
            "SELECT record FROM batches WHERE id = ?1 AND (?2 IS NULL OR tenant = ?2)",
            (batch_id, tenant),
        ).fetchone()
        if row is None:
            raise NotFound("there is no such batch", param="batch_id")
        return _RECORD.decode(row[0])

    def batches(self, tenant: str, page: Page) -> list[BatchObject]:
        """One more than the page holds tells that there are more."""
        rows = self._rows("batches", tenant, page)
        return [self._with_counts(_RECORD.decode(row).batch) for row in rows]

    def open_batches(self) -> list[BatchRecord]:
        """Of everybody, oldest first."""
        rows = self._db.execute("SELECT record FROM batches WHERE is_open ORDER BY seq")
        return [_RECORD.decode(row[0]) for row in rows]

    def cancel(self, tenant: str, batch_id: str, now: int) -> BatchObject:
        """Ask for its end. Raises `InvalidRequest` for one that has ended."""
        with self._db:
            record = self.record(batch_id, tenant)
            status = record.batch.status
            if status not in OPEN:
                raise InvalidRequest(f"the batch is {status} already", param="batch_id")
            if status != "cancelling":
                batch = replace(record.batch, status="cancelling", cancelling_at=now)
                self._store(replace(record, batch=batch))
        return self.batch(tenant, batch_id)

    def begin(self, batch_id: str, lines: int, now: int) -> BatchRecord:
        """Its input is valid. One that is being cancelled stays so."""
        with self._db:
            record = self.record(batch_id)
            batch = replace(record.batch, request_counts=BatchCounts(total=lines))
            if batch.status == "validating":
                batch = replace(batch, status="in_progress", in_progress_at=now)
            record = replace(record, batch=batch)
            self._store(record)
        return record

    def fail(self, batch_id: str, errors: BatchErrors, now: int) -> None:
        """Its input is not valid, and that is its end."""
        with self._db:
            record = self.record(batch_id)
            batch = replace(record.batch, status="failed", failed_at=now, errors=errors)
            self._store(replace(record, batch=batch))

    def end(self, batch: BatchObject, files: Sequence[FileObject]) -> None:
        """Put down how it ended, and its files; forget the lines, which are in them."""
        with self._db:
            record = self.record(batch.id)
            for file in files:
                self._insert_file(record.tenant, file)
            self._store(replace(record, batch=batch))
            self._db.execute("DELETE FROM results WHERE batch = ?", (batch.id,))

    # Lines.

    def add_results(self, batch_id: str, results: Iterable[LineResult]) -> None:
        """What is there already stays as it is."""
        with self._db:
            self._db.executemany(
                "INSERT OR IGNORE INTO results VALUES (?, ?, ?, ?)",
                ((batch_id, r.line, r.has_failed, r.record) for r in results),
            )

    def finished_lines(self, batch_id: str) -> set[int]:
        """Numbers of lines with a result."""
        rows = self._db.execute("SELECT line FROM results WHERE batch = ?", (batch_id,))
        return {row[0] for row in rows}

    def results(self, batch_id: str, *, has_failed: bool) -> Iterator[bytes]:
        """Lines for one of the two files, in the input's order."""
        rows = self._db.execute(
            "SELECT record FROM results WHERE batch = ? AND has_failed = ? ORDER BY line",
            (batch_id, has_failed),
        )
        return (row[0] for row in rows)

    def counts(self, batch_id: str, total: int) -> BatchCounts:
        """Of the lines that have a result."""
        by_kind = dict(
            self._db.execute(
                "SELECT has_failed, COUNT(*) FROM results WHERE batch = ? GROUP BY has_failed",
                (batch_id,),
            )
        )
        return BatchCounts(total, by_kind.get(0, 0), by_kind.get(1, 0))

    def _rows(
        self, table: str, tenant: str, page: Page, where: str = "", value: str | None = None
    ) -> list[bytes]:
        """Records of a page; `where` is one of our own conditions, `value` its ?4."""
        direction, compare = ("ASC", ">") if page.is_ascending else ("DESC", "<")
        after = None
        if page.after is not None:
            found = self._db.execute(
                f"SELECT seq FROM {table} WHERE id = ? AND tenant = ?",  # noqa: S608  our words
                (page.after, tenant),
            ).fetchone()
            if found is None:
                raise InvalidRequest("after names nothing that is there", param="after")
            after = found[0]
        query = (
            f"SELECT record FROM {table} WHERE tenant = ?1"  # noqa: S608  our words
            f" AND (?2 IS NULL OR seq {compare} ?2) {where} ORDER BY seq {direction} LIMIT ?3"
        )
        rows = self._db.execute(
            query,
            (tenant, after, page.limit + 1, *([value] if where else [])),
        )
        return [row[0] for row in rows]

    def _with_counts(self, batch: BatchObject) -> BatchObject:
        if batch.status not in OPEN:
            return batch
        return replace(batch, request_counts=self.counts(batch.id, batch.request_counts.total))

    def _store(self, record: BatchRecord) -> None:
        self._db.execute(
            "UPDATE batches SET record = ?, is_open = ? WHERE id = ?",
            (msgspec.json.encode(record), record.batch.status in OPEN, record.batch.id),
        )

    def _insert_file(self, tenant: str, file: FileObject) -> None:
        self._db.execute(
            "INSERT INTO files (id, tenant, purpose, bytes, record) VALUES (?, ?, ?, ?, ?)",
            (file.id, tenant, file.purpose, file.bytes, msgspec.json.encode(file)),
        )


_FILE = msgspec.json.Decoder(FileObject)
_RECORD = msgspec.json.Decoder(BatchRecord)
