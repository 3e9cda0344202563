"""Event streams are cut into the same events, however the network cuts them."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from steelyard.contract.errors import ProtocolError
from steelyard.lab.client.events import EventSplitter

_DATA = st.text(st.characters(codec="utf-8", exclude_characters="\r\n"), max_size=12).map(
    str.encode
)


@given(st.lists(_DATA, max_size=6), st.sampled_from([b"\n", b"\r\n", b"\r"]), st.data())
def test_events_survive_any_cut_and_any_line_end(events, line_end: bytes, data) -> None:
    wire = b"".join(b"data: %b%b%b" % (event, line_end, line_end) for event in events)
    wire += b": the end" + line_end  # so that a lone carriage return is not the last byte
    cuts = data.draw(st.lists(st.integers(0, len(wire)), max_size=10).map(sorted))
    splitter, found = EventSplitter(), []
    for start, end in zip([0, *cuts], [*cuts, len(wire)], strict=True):
        found += splitter.feed(wire[start:end])
    assert found == events


def test_comments_and_other_fields_are_no_events() -> None:
    splitter = EventSplitter()
    wire = b": keep-alive\n\nid: 5\nevent: message\nretry: 100\ndata: {}\n\n: again\n\n"
    assert splitter.feed(wire) == [b"{}"]
    assert splitter.comments == 2


def test_several_data_lines_are_one_event() -> None:
    assert EventSplitter().feed(b"data: a\ndata:b\ndata\n\n") == [b"a\nb\n"]


def test_several_events_may_come_in_one_read() -> None:
    assert EventSplitter().feed(b"data: a\n\ndata: b\n\n") == [b"a", b"b"]


def test_an_error_field_becomes_an_event() -> None:
    found = EventSplitter().feed(b'error: {"message": "no"}\n\n')
    assert found == [b'{"error":{"message": "no"}}']


def test_an_event_without_end_is_refused() -> None:
    splitter = EventSplitter()
    with pytest.raises(ProtocolError):
        for _ in range(20):
            splitter.feed(b"data: " + b"x" * 1024 * 1024)
