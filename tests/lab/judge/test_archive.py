"""The archive keeps what it was given, under the right fingerprint, through all its versions."""

import sqlite3
from pathlib import Path

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from steelyard.contract.errors import InvalidRequest
from steelyard.lab.bench.repeats import summarise_repeats
from steelyard.lab.judge.archive import Archive, migrate
from steelyard.lab.judge.fingerprint import (
    FINGERPRINT_FIELDS,
    Fingerprint,
    fingerprint_of,
    unlike_fields,
    workload_digest,
)
from steelyard.lab.judge.history import Remembered, history_figures, history_report
from steelyard.lab.judge.survey import flags_of, weights_digest
from steelyard.lab.load import AzureTrace, TraceReplay, Workload

from .results import made_up_run

RUN = made_up_run()
OTHER = made_up_run("r2", seed=1)


def test_a_result_comes_back_as_it_was(tmp_path: Path) -> None:
    repeats = summarise_repeats([RUN, OTHER])
    with Archive.open(tmp_path / "a.sqlite") as archive:
        archive.store(RUN, fingerprint_of([RUN]), note="first")
        archive.store(repeats, fingerprint_of([RUN, OTHER]))
    with Archive.open(tmp_path / "a.sqlite") as archive:
        first, second = archive.entries()
        assert archive.load(first) == RUN
        assert archive.load(second) == repeats
        assert (first.kind, second.kind) == ("run", "repeats")
        assert first.note == "first"


def test_storing_twice_keeps_one_and_its_note(tmp_path: Path) -> None:
    with Archive.open(tmp_path / "a.sqlite") as archive:
        archive.store(RUN, fingerprint_of([RUN]), note="kept")
        entry = archive.store(RUN, fingerprint_of([RUN], {"driver": "570"}))
        assert archive.entries() == [entry]
        assert entry.note == "kept"
        assert entry.fingerprint.driver == "570"


def test_a_set_refuses_other_conditions_until_it_is_replaced(tmp_path: Path) -> None:
    with Archive.open(tmp_path / "a.sqlite") as archive:
        one = archive.store(RUN, fingerprint_of([RUN], {"flags": "--a"}))
        two = archive.store(OTHER, fingerprint_of([OTHER], {"flags": "--b"}))
        archive.add_to_set(one, "monthly")
        with pytest.raises(InvalidRequest, match="flags: --a against --b"):
            archive.add_to_set(two, "monthly")
        assert [entry.id for entry in archive.members("monthly")] == [one.id]
        archive.add_to_set(two, "monthly", replaces=True)
        assert [entry.id for entry in archive.members("monthly")] == [two.id]
        assert archive.find(str(one.id)).sets == ()


def test_what_nobody_knows_keeps_nothing_out_of_a_set(tmp_path: Path) -> None:
    with Archive.open(tmp_path / "a.sqlite") as archive:
        archive.add_to_set(archive.store(RUN, fingerprint_of([RUN], {"flags": "--a"})), "s")
        archive.add_to_set(archive.store(OTHER, fingerprint_of([OTHER])), "s")
        assert len(archive.members("s")) == 2


def test_ids_that_mean_none_or_several_are_refused(tmp_path: Path) -> None:
    with Archive.open(tmp_path / "a.sqlite") as archive:
        for run in (RUN, OTHER):
            archive.store(run, fingerprint_of([run]))
        with pytest.raises(InvalidRequest, match="means 2 results"):
            archive.find("r")
        with pytest.raises(InvalidRequest, match="not in the archive"):
            archive.find("nothing")
        assert archive.find("r2").key == "r2"


def test_older_files_are_brought_up_to_date_step_by_step(tmp_path: Path) -> None:
    steps = ("CREATE TABLE t (a)", "ALTER TABLE t ADD COLUMN b DEFAULT 7")
    connection = sqlite3.connect(tmp_path / "m.sqlite", isolation_level=None)
    migrate(connection, steps[:1])
    connection.execute("INSERT INTO t VALUES (1)")
    migrate(connection, steps)
    migrate(connection, steps)
    assert connection.execute("SELECT a, b FROM t").fetchall() == [(1, 7)]
    with pytest.raises(InvalidRequest, match="version 2, this program knows 1"):
        migrate(connection, steps[:1])


def test_a_migration_that_fails_changes_nothing(tmp_path: Path) -> None:
    connection = sqlite3.connect(tmp_path / "m.sqlite", isolation_level=None)
    with pytest.raises(sqlite3.Error):
        migrate(connection, ("CREATE TABLE t (a); CREATE TABLE t (a)",))
    assert connection.execute("PRAGMA user_version").fetchone() == (0,)
    assert connection.execute("SELECT name FROM sqlite_master").fetchall() == []


def test_a_file_that_is_no_archive_is_refused(tmp_path: Path) -> None:
    (tmp_path / "a.sqlite").write_text("something else, and long enough to be read as a page" * 99)
    with (
        pytest.raises(InvalidRequest, match="cannot be used"),
        Archive.open(tmp_path / "a.sqlite"),
    ):
        pass


_FINGERPRINTS = st.builds(
    Fingerprint, **{name: st.sampled_from(["", "a", "b"]) for name in FINGERPRINT_FIELDS}
)


@given(_FINGERPRINTS, _FINGERPRINTS)
def test_fingerprints_differ_exactly_where_a_part_does(
    left: Fingerprint, right: Fingerprint
) -> None:
    unlike = unlike_fields(left, right)
    assert (left.digest == right.digest) == (not unlike)
    patched = msgspec.structs.replace(left, **{one.field: one.right for one in unlike})
    assert patched == right


def test_the_seed_is_no_part_of_a_workload_but_the_trace_is(tmp_path: Path) -> None:
    assert workload_digest([RUN.workload]) == workload_digest([OTHER.workload])
    assert workload_digest([RUN.workload]) != workload_digest([made_up_run(rate=11).workload])
    digests = set()
    for folder, text in (("one", "a"), ("two", "a"), ("three", "b")):
        path = tmp_path / folder / "trace.csv"
        path.parent.mkdir()
        path.write_text(text)
        replay = Workload(arrivals=TraceReplay(), content=AzureTrace(str(path)))
        digests.add(workload_digest([replay]))
    assert len(digests) == 2


def test_flags_leave_out_addresses_and_secrets() -> None:
    command = "python3 /opt/bin/vllm serve m --port 8000 --api-key hush --max-num-seqs 8 --seed=1"
    assert flags_of([*command.split(), "--auth-token=hush", "--host=::1"]) == (
        "vllm serve m --api-key … --max-num-seqs 8 --seed=1 --auth-token=…"
    )


def test_weights_are_known_by_their_contents(tmp_path: Path) -> None:
    file = tmp_path / "w.gguf"
    file.write_bytes(b"x" * 3_000_000)
    before = weights_digest([file])
    assert weights_digest([file]) == before
    file.write_bytes(b"x" * 2_999_999 + b"y")
    assert weights_digest([file]) != before


def test_history_names_what_changed_and_draws_every_result(tmp_path: Path) -> None:
    later = made_up_run("r2", factor=1.2, started_unix_s=RUN.started_unix_s + 86_400 * 30)
    with Archive.open(tmp_path / "a.sqlite") as archive:
        archive.store(later, fingerprint_of([later], {"driver": "575"}), note="new driver")
        archive.store(RUN, fingerprint_of([RUN], {"driver": "570"}))
        remembered = [Remembered(entry, archive.load(entry)) for entry in archive.entries()]
    (table,) = history_report(remembered).tables
    assert [row[0] for row in table.rows] == ["2", "1"]
    assert table.rows[1][-1] == "driver: 570 against 575; new driver"
    for figure in history_figures(remembered):
        assert sum(len(trace["x"]) for trace in figure.traces) >= 2
