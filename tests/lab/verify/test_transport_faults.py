"""Faults below JSON: framing, connections, buffering, clients that leave unnoticed."""

import re
from collections.abc import Iterator

import pytest

from steelyard.lab.verify import Status
from tests.gateway.doors import Door, engine_config, open_door

from .conftest import findings
from .raw_proxy import Change, raw_proxy


@pytest.fixture(scope="module")
def slow_door() -> Iterator[Door]:
    """Ten milliseconds a token, as a model on a good day."""
    with open_door(engine=engine_config(itl_s=0.01)) as opened:
        yield opened


def unchanged(answer: bytes) -> bytes:
    return answer


def longer_length(answer: bytes) -> bytes:
    return re.sub(rb"content-length: (\d+)", rb"content-length: 1\1", answer)


def two_lengths(answer: bytes) -> bytes:
    if b'"choices"' not in answer:
        return answer
    return answer.replace(b"content-length:", b"content-length: 1\r\ncontent-length:", 1)


def rest_of_another(answer: bytes) -> bytes:
    return answer + b'{"rest": "of another answer"}'


def cut_stream(answer: bytes) -> bytes:
    return answer.removesuffix(b"0\r\n\r\n")


def chunk(data: bytes) -> bytes:
    return b"%x\r\n%b\r\n" % (len(data), data)


def said_after_done(answer: bytes) -> bytes:
    more = chunk(b'data: {"late": true}\n\n')
    return answer.removesuffix(b"0\r\n\r\n") + more + b"0\r\n\r\n"


def without_last_empty_line(answer: bytes) -> bytes:
    head, _, _ = answer.rpartition(chunk(b"data: [DONE]\n\n"))
    return head + chunk(b"data: [DONE]\n") + b"0\r\n\r\n" if head else answer


def own_request_id(answer: bytes) -> bytes:
    return re.sub(rb"x-request-id: [^\r]+", b"x-request-id: proxy-1", answer)


@pytest.mark.parametrize(
    ("change", "check", "problem"),
    [
        (longer_length, "chat.shape", "closed before the body's end"),
        (two_lengths, "chat.shape", "Content-Length is given 2 times"),
        (rest_of_another, "completions.shape", "bytes after the end"),
        (cut_stream, "streams.form.chat", "closed before the body's end"),
        (said_after_done, "streams.form.text", "after [DONE] came"),
        (without_last_empty_line, "streams.form.chat", "not ended by an empty line"),
        (own_request_id, "http.request-id", "came back as proxy-1"),
    ],
)
async def test_broken_framing_is_found(
    door: Door, change: Change, check: str, problem: str
) -> None:
    async with raw_proxy(door.url, change, closes=change in (longer_length, cut_stream)) as url:
        found = await findings(url, check)
    assert found[check].status is Status.FAILED, found[check]
    assert any(problem in one for one in found[check].problems), found[check].problems


async def test_a_server_that_closes_without_a_word_is_found(door: Door) -> None:
    async with raw_proxy(door.url, unchanged, closes=True) as url:
        found = await findings(url, "http.keep-alive")
    assert found["http.keep-alive"].status is Status.FAILED


async def test_a_stream_that_is_held_back_to_its_end_is_found(slow_door: Door) -> None:
    async with raw_proxy(slow_door.url, unchanged) as url:
        found = await findings(url, "streams.as-made")
    assert found["streams.as-made"].status is Status.FAILED


@pytest.mark.parametrize("check", ["cancellation.streamed", "cancellation.whole"])
async def test_a_client_who_leaves_unnoticed_is_found(slow_door: Door, check: str) -> None:
    async with raw_proxy(slow_door.url, unchanged) as url:
        found = await findings(url, check)
    assert found[check].status is Status.FAILED, found[check]


async def test_the_same_checks_pass_through_a_proxy_that_changes_nothing(door: Door) -> None:
    checks = ("chat.shape", "completions.shape", "streams.form", "http")
    async with raw_proxy(door.url, unchanged) as url:
        # This one reads a request at a time.
        found = await findings(url, *checks, skip=["http.pipelining"])
    assert {one.status for one in found.values()} == {Status.PASSED}, found
