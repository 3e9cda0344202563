"""Records: merged, chosen from, written and read without losing an event."""

import tracemalloc
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from steelyard.contract.errors import InvalidRequest
from steelyard.lab.outcomes import EventKind, Outcome, RequestFlag
from steelyard.lab.records import (
    REQUEST_COLUMNS,
    Records,
    load_records,
    merge_records,
    request_array,
    save_records,
)

_EVENTS = st.lists(st.floats(0, 100), max_size=5).map(sorted)
_REQUESTS = st.lists(st.tuples(st.floats(0, 50), st.sampled_from(Outcome), _EVENTS), max_size=8)


@given(st.lists(_REQUESTS, max_size=4))
def test_merging_sorts_requests_and_keeps_their_events(workers) -> None:
    merged = merge_records([made(requests, worker) for worker, requests in enumerate(workers)])
    assert sorted(_known(merged)) == sorted(
        (at, int(outcome), tuple(events))
        for requests in workers
        for at, outcome, events in requests
    )
    assert np.all(np.diff(merged.requests["scheduled_s"]) >= 0)


@given(_REQUESTS, st.data())
def test_chosen_requests_keep_their_events_and_no_others(requests, data) -> None:
    records = merge_records([made(requests)])
    keep = np.array(
        data.draw(st.lists(st.booleans(), min_size=len(records), max_size=len(records))),
        dtype=bool,
    )
    chosen = records.where(keep)
    assert _known(chosen) == [
        row for row, is_kept in zip(_known(records), keep, strict=True) if is_kept
    ]
    assert np.sum(chosen.requests["events"]) == len(chosen.event_times_s)


@given(_REQUESTS)
def test_every_event_has_the_owner_whose_row_points_at_it(requests) -> None:
    records = merge_records([made(requests)])
    owners = records.event_owners()
    for row, request in enumerate(records.requests):
        events = owners[request["first_event"] : request["first_event"] + request["events"]]
        assert np.all(events == row)
    assert np.all(np.bincount(owners, minlength=len(records)) == records.requests["events"])


def test_what_is_written_can_be_read_again(tmp_path: Path) -> None:
    records = made([(1.0, Outcome.COMPLETE, [1.5, 2.0]), (2.0, Outcome.SHED, [])])
    records.messages[Outcome.SHED, "429: full — später"] = 7
    path = tmp_path / "records.npz"
    save_records(records, path)
    read = load_records(path)
    np.testing.assert_array_equal(read.requests, records.requests)
    np.testing.assert_array_equal(read.event_times_s, records.event_times_s)
    assert read.messages == records.messages
    assert load_records(path.read_bytes()).messages == records.messages


@pytest.mark.parametrize("content", [b"", b"not an archive", b"PK\x03\x04broken"])
def test_other_files_are_refused(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "records.npz"
    path.write_bytes(content)
    with pytest.raises(InvalidRequest, match="holds no records"):
        load_records(path)


def test_an_archive_of_other_columns_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "records.npz"
    np.savez(path, version=np.array(1), requests=np.zeros(3))
    with pytest.raises(InvalidRequest, match="columns"):
        load_records(path)


def test_a_million_token_events_fit_into_a_few_tens_of_megabytes() -> None:
    tracemalloc.start()
    count, each = 10_000, 100
    requests = [
        (float(at), Outcome.COMPLETE, [at + 0.01 * n for n in range(each)]) for at in range(count)
    ]
    before, _ = tracemalloc.get_traced_memory()
    records = made(requests)
    del requests
    held, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert len(records.event_times_s) == 1_000_000
    arrays = (records.requests, records.event_times_s, records.event_tokens, records.event_kinds)
    assert sum(array.nbytes for array in arrays) < 15e6
    assert held < before + 30e6


def test_every_column_says_what_it_means() -> None:
    names = [name for name, _, _ in REQUEST_COLUMNS]
    assert len(set(names)) == len(names)
    assert all(meaning for _, _, meaning in REQUEST_COLUMNS)


def made(requests, worker: int = 0) -> Records:
    """From (scheduled, outcome, event times)."""
    rows, times = [], []
    for number, (at, outcome, events) in enumerate(requests):
        values = {
            "session": number,
            "worker": worker,
            "scheduled_s": at,
            "outcome": int(outcome),
            "first_event": len(times),
            "events": len(events),
        }
        rows.append(tuple(values.get(name, 0) for name, _, _ in REQUEST_COLUMNS))
        times.extend(events)
    return Records(
        request_array(rows),
        np.array(times, dtype=np.float64),
        np.ones(len(times), dtype=np.uint16),
        np.full(len(times), int(EventKind.ANSWER), dtype=np.uint8),
        Counter(),
    )


def _known(records: Records) -> list[tuple[float, int, tuple[float, ...]]]:
    return [
        (
            float(row["scheduled_s"]),
            int(row["outcome"]),
            tuple(records.event_times_s[row["first_event"] : row["first_event"] + row["events"]]),
        )
        for row in records.requests
    ]


def test_flags_are_found() -> None:
    records = made([(0.0, Outcome.COMPLETE, []), (1.0, Outcome.COMPLETE, [])])
    records.requests["flags"][1] = int(RequestFlag.BUNDLED | RequestFlag.ESTIMATED)
    assert list(records.flagged(RequestFlag.BUNDLED)) == [False, True]
    assert not records.flagged(RequestFlag.WARM_UP).any()
