"""Responses are read the same, however the network cuts them."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from steelyard.contract.errors import ProtocolError
from steelyard.lab.client.http_response import ResponseReader

_PIECES = st.lists(st.binary(min_size=1, max_size=40), max_size=8)


def chunked(pieces: list[bytes], *, extension: bytes = b"", trailer: bytes = b"") -> bytes:
    chunks = b"".join(b"%x%b\r\n%b\r\n" % (len(p), extension, p) for p in pieces)
    return chunks + b"0\r\n" + trailer + b"\r\n"


@given(
    _PIECES, st.data(), st.sampled_from([b"", b";a=b", b" "]), st.sampled_from([b"", b"x: y\r\n"])
)
def test_a_chunked_body_survives_any_cut(pieces, data, extension: bytes, trailer: bytes) -> None:
    wire = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nX-A: 1\r\n\r\n"
    wire += chunked(pieces, extension=extension, trailer=trailer)
    reader, body = _read_cut(wire, data)
    assert body == b"".join(pieces)
    assert reader.is_complete
    assert reader.keeps_connection
    assert (reader.status, reader.headers["x-a"]) == (200, "1")


@given(st.binary(max_size=60), st.data())
def test_a_sized_body_survives_any_cut(content: bytes, data) -> None:
    wire = b"HTTP/1.1 429 Too Many\r\ncontent-length: %d\r\n\r\n%b" % (len(content), content)
    reader, body = _read_cut(wire, data)
    assert body == content
    assert reader.is_complete


def test_each_chunk_is_given_out_as_it_comes() -> None:
    reader = ResponseReader()
    reader.feed(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")
    assert reader.feed(b"5\r\nhello\r\n") == b"hello"
    assert reader.feed(b"3\r\nabc\r\n2\r\nde\r\n4\r\nfg") == b"abcdefg"
    assert reader.feed(b"hi\r\n0\r\n\r\n") == b"hi"
    assert reader.is_complete


def test_a_body_without_length_ends_with_the_connection() -> None:
    reader = ResponseReader()
    assert reader.feed(b"HTTP/1.1 200 OK\r\n\r\nall of") == b"all of"
    assert reader.feed(b" it") == b" it"
    assert not reader.is_complete
    reader.end_of_connection()
    assert reader.is_complete
    assert not reader.keeps_connection


@pytest.mark.parametrize(
    "wire",
    [
        b"HTTP/1.1 200 OK\r\ncontent-le",
        b"HTTP/1.1 200 OK\r\ncontent-length: 5\r\n\r\nabc",
        b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n5\r\nabcde\r\n",
    ],
)
def test_a_response_that_breaks_off_is_incomplete(wire: bytes) -> None:
    reader = ResponseReader()
    reader.feed(wire)
    with pytest.raises(ProtocolError):
        reader.end_of_connection()


@pytest.mark.parametrize(
    "wire",
    [
        b"SSH-2.0-OpenSSH\r\n\r\n",
        b"HTTP/1.1 abc\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nno colon here\r\n\r\n",
        b"HTTP/1.1 200 OK\r\ncontent-length: -5\r\n\r\n",
        b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\nxyz\r\n",
        b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n" + b"1" * 5000,
        b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\nmore",
        b"a" * 70_000,
    ],
)
def test_what_is_no_response_is_refused(wire: bytes) -> None:
    with pytest.raises(ProtocolError):
        ResponseReader().feed(wire)


def test_early_hints_are_not_the_response() -> None:
    reader = ResponseReader()
    wire = b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early Hints\r\nlink: x\r\n\r\n"
    assert reader.feed(wire) == b""
    assert reader.status == 0
    assert reader.feed(b"HTTP/1.1 204 No Content\r\n\r\n") == b""
    assert reader.is_complete


def test_a_server_that_closes_says_so() -> None:
    reader = ResponseReader()
    reader.feed(b"HTTP/1.1 200 OK\r\nConnection: close\r\ncontent-length: 0\r\n\r\n")
    assert reader.is_complete
    assert not reader.keeps_connection


def _read_cut(wire: bytes, data) -> tuple[ResponseReader, bytes]:
    cuts = data.draw(st.lists(st.integers(0, len(wire)), max_size=10).map(sorted))
    reader, body = ResponseReader(), b""
    for start, end in zip([0, *cuts], [*cuts, len(wire)], strict=True):
        if start < end:
            body += reader.feed(wire[start:end])
    return reader, body
