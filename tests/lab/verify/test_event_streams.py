"""Events are read as browsers must read them; what browsers would drop is a fault."""

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from steelyard.lab.verify.event_stream import read_events
from steelyard.lab.verify.exchange import Piece


def read(*parts: bytes):  # type: ignore[no-untyped-def]
    return read_events([Piece(part, float(at)) for at, part in enumerate(parts)])


@pytest.mark.parametrize("end", [b"\n", b"\r\n", b"\r"])
@given(cuts=st.lists(st.integers(0, 60), max_size=6))
def test_line_ends_and_packets_do_not_matter(end: bytes, cuts: list[int]) -> None:
    lines = ["data: ä".encode(), b"", b": comment", b"data:two", b"data: lines", b"", b""]
    data = end.join(lines)
    borders = [0, *sorted(cuts), len(data)]
    stream = read(*(data[a:b] for a, b in itertools.pairwise(borders)))
    assert [event.data for event in stream.events] == ["ä", "two\nlines"]
    assert stream.faults == ()


def test_an_event_has_the_time_of_its_last_byte() -> None:
    stream = read(b"data: a\n", b"\ndata: b\n", b"\n")
    assert [event.at_s for event in stream.events] == [1.0, 2.0]


def test_other_fields_and_comments_are_no_faults() -> None:
    stream = read(b": hello\nevent: message\nid: 7\nretry: 10\ndata: a\n\n")
    assert [event.data for event in stream.events] == ["a"]
    assert stream.faults == ()


@pytest.mark.parametrize(
    ("data", "fault"),
    [
        (b"data: a\n", "not ended by an empty line"),
        (b"data: a\n\ndata: b", "ends inside a line"),
        (b'{"id": 1}\n\n', "no field of an event"),
        (b"data: \xff\xfe\n\n", "not UTF-8"),
    ],
)
def test_what_browsers_drop_is_a_fault(data: bytes, fault: str) -> None:
    assert any(fault in one for one in read(data).faults)
