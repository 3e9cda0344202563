"""Results that are kept: an SQLite file with every result under its fingerprint, and sets of them.

A set is what later results are held against: results of one fingerprint, several of them where
somebody wants to know how much results differ by chance. The schema has a number; older files are
brought up to date when they are opened, newer ones are refused.
"""

import contextlib
import sqlite3
import time
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import msgspec

from steelyard.contract.errors import InvalidRequest
from steelyard.lab.judge.fingerprint import Fingerprint, Unlike, unlike_fields
from steelyard.lab.judge.stored_results import (
    Result,
    decode_result,
    result_kind,
    runs_of,
    started_unix_s,
)

__all__ = ["Archive", "Entry", "migrate"]

_MIGRATIONS: tuple[str, ...] = (
    """
    CREATE TABLE fingerprints (digest TEXT PRIMARY KEY, facts TEXT NOT NULL);
    CREATE TABLE results (
        id INTEGER PRIMARY KEY,
        key TEXT NOT NULL UNIQUE,
        kind TEXT NOT NULL,
        name TEXT NOT NULL,
        note TEXT NOT NULL,
        started_unix_s REAL NOT NULL,
        stored_unix_s REAL NOT NULL,
        is_valid INTEGER NOT NULL,
        fingerprint TEXT NOT NULL REFERENCES fingerprints(digest),
        body BLOB NOT NULL
    );
    CREATE TABLE members (
        set_name TEXT NOT NULL,
        result INTEGER NOT NULL REFERENCES results(id),
        since_unix_s REAL NOT NULL,
        until_unix_s REAL,
        PRIMARY KEY (set_name, result)
    );
    """,
    "CREATE INDEX results_by_time ON results (fingerprint, started_unix_s);",
)
"""Each brings a file from version n to n + 1. Never change one that was released."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """A stored result without its body."""

    id: int
    key: str
    """Derived from the ids of its runs: the same result is stored once."""
    kind: str
    name: str
    note: str
    started_unix_s: float
    is_valid: bool
    fingerprint: Fingerprint
    sets: tuple[str, ...]
    """Sets it belongs to today."""


class Archive:
    """An open file. Use as a context manager; every change is one transaction."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection

    @classmethod
    @contextlib.contextmanager
    def open(cls, path: Path) -> "Iterator[Archive]":
        """Made when it is not there. Raises `InvalidRequest` when it is no archive of ours."""
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            connection = sqlite3.connect(path, isolation_level=None, timeout=10)
        except (OSError, sqlite3.Error) as error:
            raise InvalidRequest(str(error), param=str(path)) from error
        try:
            connection.execute("PRAGMA foreign_keys = ON")
            migrate(connection, _MIGRATIONS)
            yield cls(connection)
        except sqlite3.Error as error:
            raise InvalidRequest(f"cannot be used: {error}", param=str(path)) from error
        finally:
            connection.close()

    def store(self, result: Result, fingerprint: Fingerprint, *, note: str = "") -> Entry:
        """Keep a result; storing it again only changes its note and its fingerprint."""
        runs, key = runs_of(result), _key(result)
        row = (
            key,
            result_kind(result),
            runs[0].name,
            note,
            started_unix_s(result),
            time.time(),
            all(run.audit.is_valid for run in runs),
            fingerprint.digest,
            zlib.compress(msgspec.json.encode(result)),
        )
        facts = msgspec.json.encode(fingerprint).decode()
        with _transaction(self._connection) as connection:
            connection.execute(
                "INSERT OR IGNORE INTO fingerprints VALUES (?, ?)", (fingerprint.digest, facts)
            )
            connection.execute(
                "INSERT INTO results (key, kind, name, note, started_unix_s, stored_unix_s, "
                "is_valid, fingerprint, body) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?) "
                "ON CONFLICT (key) DO UPDATE SET fingerprint = excluded.fingerprint, "
                "note = CASE excluded.note WHEN '' THEN note ELSE excluded.note END",
                row,
            )
        return self.find(key)

    def add_to_set(self, entry: Entry, name: str, *, replaces: bool = False) -> None:
        """Make it part of a set. A set has one kind of result and one fingerprint: others are
        refused with `InvalidRequest`, unless they replace what the set consists of."""
        members = [member for member in self.members(name) if member.id != entry.id]
        if members and not replaces:
            differing = unlike_fields(members[0].fingerprint, entry.fingerprint)
            unlike = tuple(one for one in differing if one.is_known)
            if unlike or members[0].kind != entry.kind:
                raise InvalidRequest(_cannot_join(name, members[0], entry, unlike), param="set")
        now = time.time()
        with _transaction(self._connection) as connection:
            if replaces:
                connection.execute(
                    "UPDATE members SET until_unix_s = ? "
                    "WHERE set_name = ? AND until_unix_s IS NULL",
                    (now, name),
                )
            connection.execute(
                "INSERT INTO members VALUES (?, ?, ?, NULL) ON CONFLICT (set_name, result) "
                "DO UPDATE SET until_unix_s = NULL",
                (name, entry.id, now),
            )

    def members(self, set_name: str) -> list[Entry]:
        """What a set consists of today, oldest first; empty when there is no such set."""
        return self._select(
            "WHERE r.id IN (SELECT result FROM members "
            "WHERE set_name = ? AND until_unix_s IS NULL)",
            (set_name,),
        )

    def entries(self, *, fingerprint: str | None = None, kind: str | None = None) -> list[Entry]:
        """All, oldest first; of one fingerprint (its digest or the start of it), of one kind."""
        where, values = ["1"], []
        if fingerprint is not None:
            where.append("r.fingerprint LIKE ?")
            values.append(fingerprint + "%")
        if kind is not None:
            where.append("r.kind = ?")
            values.append(kind)
        return self._select(f"WHERE {' AND '.join(where)}", tuple(values))

    def find(self, text: str) -> Entry:
        """By number, key or the beginning of a key. Raises `InvalidRequest` when none or several
        are meant."""
        found = self._select("WHERE r.key = ? OR CAST(r.id AS TEXT) = ?", (text, text))
        if not found:
            found = self._select("WHERE substr(r.key, 1, ?) = ?", (len(text), text))
        if len(found) == 1:
            return found[0]
        problem = "is not in the archive" if not found else f"means {len(found)} results"
        raise InvalidRequest(f"{text!r} {problem}", fix="`steelyard bench list` shows them")

    def entry_of(self, result: Result) -> Entry | None:
        """Where it is stored. None: it is not."""
        found = self._select("WHERE r.key = ?", (_key(result),))
        return found[0] if found else None

    def load(self, entry: Entry) -> Result:
        """The result itself."""
        (body,) = self._connection.execute(
            "SELECT body FROM results WHERE id = ?", (entry.id,)
        ).fetchone()
        return decode_result(zlib.decompress(body), where=entry.key)

    def _select(self, where: str, values: tuple[object, ...]) -> list[Entry]:
        rows = self._connection.execute(
            "SELECT r.id, r.key, r.kind, r.name, r.note, r.started_unix_s, r.is_valid, f.facts, "  # noqa: S608 - `where` is text of this class, values are bound
            "(SELECT group_concat(set_name) FROM members "
            " WHERE result = r.id AND until_unix_s IS NULL) "
            "FROM results r JOIN fingerprints f ON f.digest = r.fingerprint "
            f"{where} ORDER BY r.started_unix_s, r.id",
            values,
        ).fetchall()
        return [
            Entry(
                id=number,
                key=key,
                kind=kind,
                name=name,
                note=note,
                started_unix_s=started,
                is_valid=bool(valid),
                fingerprint=msgspec.json.decode(facts, type=Fingerprint),
                sets=tuple(sorted(sets.split(","))) if sets else (),
            )
            for number, key, kind, name, note, started, valid, facts, sets in rows
        ]


def migrate(connection: sqlite3.Connection, migrations: Sequence[str]) -> None:
    """Bring a file up to the newest version, one transaction per step.

    Raises `InvalidRequest` for a file that a newer program has written.
    """
    (version,) = connection.execute("PRAGMA user_version").fetchone()
    if version > len(migrations):
        raise InvalidRequest(
            f"the archive has version {version}, this program knows {len(migrations)}",
            fix="use the newer steelyard that wrote it",
        )
    for number in range(version, len(migrations)):
        steps = f"BEGIN IMMEDIATE; {migrations[number]}; PRAGMA user_version = {number + 1}; COMMIT"
        try:
            connection.executescript(steps)
        except sqlite3.Error:
            if connection.in_transaction:
                connection.execute("ROLLBACK")
            raise


@contextlib.contextmanager
def _transaction(connection: sqlite3.Connection) -> Iterator[sqlite3.Connection]:
    connection.execute("BEGIN IMMEDIATE")
    try:
        yield connection
    except BaseException:
        connection.execute("ROLLBACK")
        raise
    connection.execute("COMMIT")


def _key(result: Result) -> str:
    runs = runs_of(result)
    return runs[0].run_id + (f"+{len(runs) - 1}" if len(runs) > 1 else "")


def _cannot_join(name: str, member: Entry, entry: Entry, unlike: tuple[Unlike, ...]) -> str:
    if unlike:
        found = "; ".join(map(str, unlike))
        return (
            f"{name!r} was measured under other conditions ({found}); replace it, or take "
            "another name"
        )
    return f"{name!r} consists of {member.kind}, this is {entry.kind}"
