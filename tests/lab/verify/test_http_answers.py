"""Answers are read as RFC 9112 asks, whatever the packets; every breach is a fault."""

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from steelyard.lab.verify.http_answer import AnswerParser

PLAIN = b"HTTP/1.1 200 OK\r\ncontent-length: 5\r\nX-Request-Id: a b \r\n\r\nhello"
CHUNKED = (
    b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n"
    b"3\r\nhel\r\n2;x=y\r\nlo\r\n0\r\ntrailer: t\r\n\r\n"
)


def parse(*parts: bytes, ends: bool = False) -> tuple[AnswerParser, bytes]:
    parser = AnswerParser()
    body = b"".join(parser.feed(part) for part in parts)
    if ends:
        parser.end()
    return parser, body


@pytest.mark.parametrize("data", [PLAIN, CHUNKED])
@given(cuts=st.lists(st.integers(0, 120), max_size=8))
def test_the_packets_do_not_matter(data: bytes, cuts: list[int]) -> None:
    borders = [0, *sorted(cuts), len(data)]
    parts = [data[a:b] for a, b in itertools.pairwise(borders)]
    parser, body = parse(*parts)
    assert parser.is_done and not parser.faults
    assert body == b"hello"
    assert parser.head is not None and parser.head.status == 200


def test_fields_are_found_by_small_letters_and_without_blanks() -> None:
    parser, _ = parse(PLAIN)
    assert parser.head is not None
    assert parser.head.get("x-request-id") == "a b"
    assert parser.head.all("missing") == []


def test_an_interim_answer_is_passed_over() -> None:
    parser, body = parse(b"HTTP/1.1 100 Continue\r\n\r\n" + PLAIN)
    assert parser.head is not None and parser.head.status == 200
    assert body == b"hello"


def test_without_a_length_the_body_ends_with_the_connection() -> None:
    parser, body = parse(b"HTTP/1.1 200 OK\r\n\r\nhel", b"lo")
    before = parser.is_done
    parser.end()
    assert (before, parser.is_done, parser.faults, body) == (False, True, [], b"hello")


def test_answers_to_head_have_no_body() -> None:
    parser = AnswerParser(is_answer_to_head=True)
    parser.feed(b"HTTP/1.1 200 OK\r\ncontent-length: 5\r\n\r\n")
    assert parser.is_done and not parser.faults


def test_what_follows_the_answer_is_kept_apart() -> None:
    parser, body = parse(PLAIN + b"HTTP/1.1 200")
    assert body == b"hello"
    assert parser.rest == b"HTTP/1.1 200"


@pytest.mark.parametrize(
    ("data", "fault"),
    [
        (b"HTP/1.1 200 OK\r\n\r\n", "status line"),
        (b"HTTP/1.1 200 OK\r\nno colon\r\n\r\n", "header line"),
        (b"HTTP/1.1 200 OK\r\nname : x\r\n\r\n", "header line"),
        (b"HTTP/1.1 200 OK\r\ncontent-length: 1\r\ncontent-length: 2\r\n\r\n", "given 2 times"),
        (b"HTTP/1.1 200 OK\r\ncontent-length: x\r\n\r\n", "no number"),
        (
            b"HTTP/1.1 200 OK\r\ncontent-length: 1\r\ntransfer-encoding: chunked\r\n\r\n",
            "both given",
        ),
        (b"HTTP/1.1 200 OK\r\ntransfer-encoding: gzip\r\n\r\n", "not chunked"),
        (b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\nxyz\r\n", "hexadecimal"),
        (b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n2\r\nabcd", "does not end"),
        (b"HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\nshort", "closed before the body's end"),
        (b"HTTP/1.1 200 OK\r\n", "closed before the header's end"),
        (b"HTTP/1.1 200 OK\r\nx: " + b"y" * 70_000, "longer than 64 KiB"),
    ],
)
def test_every_breach_is_a_fault(data: bytes, fault: str) -> None:
    parser, _ = parse(data, ends=True)
    assert parser.is_done
    assert any(fault in one for one in parser.faults), parser.faults


@pytest.mark.parametrize(
    ("version", "connection", "keeps"),
    [
        ("1.1", "", True),
        ("1.1", "connection: close\r\n", False),
        ("1.1", "connection: Foo, Close\r\n", False),
        ("1.0", "", False),
        ("1.0", "connection: keep-alive\r\n", True),
    ],
)
def test_whether_the_connection_stays_is_read_from_the_head(
    version: str, connection: str, keeps: bool
) -> None:
    parser, _ = parse(f"HTTP/{version} 200 OK\r\n{connection}content-length: 0\r\n\r\n".encode())
    assert parser.head is not None and parser.head.keeps_alive is keeps
