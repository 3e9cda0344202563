"""The benchmark's client reads answers however the network cuts them, and stamps them right."""

import json
from itertools import pairwise

import pytest
from benchmarks.engines.answers import read_answer
from benchmarks.engines.sse import MalformedAnswer, StreamedAnswer, StreamReader
from hypothesis import given
from hypothesis import strategies as st


def event(text: str | None = None, *, finish: str | None = None, usage: dict | None = None) -> str:
    choices = [] if text is None else [{"index": 0, "text": text, "finish_reason": finish}]
    return f"data: {json.dumps({'choices': choices, 'usage': usage})}"


USAGE = {
    "prompt_tokens": 5,
    "completion_tokens": 3,
    "prompt_tokens_details": {"cached_tokens": 2},
}
EVENTS = [
    event("Hel"),
    event("lo"),
    event("!", finish="length"),
    event(usage=USAGE),
    "data: [DONE]",
]


def chunked(parts: list[str], end: str = "\n\n") -> bytes:
    body = b""
    for part in parts:
        data = (part + end).encode()
        body += b"%x\r\n%b\r\n" % (len(data), data)
    return b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n" + body + b"0\r\n\r\n"


def feed_in_pieces(data: bytes, cuts: list[int]) -> StreamedAnswer:
    """Feed `data` cut at `cuts`, at the times 0, 1, 2, …; only the last piece may complete it."""
    reader = StreamReader()
    edges = [0, *sorted({cut % len(data) for cut in cuts} - {0}), len(data)]
    for number, (begin, end) in enumerate(pairwise(edges)):
        answer = reader.feed(data[begin:end], number)
        assert (answer is not None) == (end == len(data))
    assert answer is not None
    return answer


@given(
    cuts=st.lists(st.integers(1, 10_000), max_size=40), end=st.sampled_from(["\n\n", "\r\n\r\n"])
)
def test_any_cut_of_the_bytes_gives_the_same_events(cuts: list[int], end: str) -> None:
    answer = feed_in_pieces(chunked(EVENTS, end), cuts)
    assert answer.status == 200
    assert [data.decode() for _, data in answer.events] == [e[len("data: ") :] for e in EVENTS]


def test_events_of_one_chunk_are_told_apart() -> None:
    answer = feed_in_pieces(chunked(["\n\n".join(EVENTS)]), [])
    assert len(answer.events) == len(EVENTS)


def test_an_event_is_stamped_when_its_last_byte_is_read() -> None:
    data = chunked(EVENTS)
    middle = data.index(b"lo") + 1
    answer = feed_in_pieces(data, [middle])
    assert [stamp for stamp, _ in answer.events] == [0, 1, 1, 1, 1]


def test_a_body_with_a_length_is_read_to_its_end_and_comments_are_no_events() -> None:
    body = ": waiting\n\n" + "".join(f"{e}\n\n" for e in EVENTS)
    head = f"HTTP/1.1 200 OK\r\nContent-Length: {len(body)}\r\n\r\n"
    answer = feed_in_pieces((head + body).encode(), [len(head) + 3])
    assert len(answer.events) == len(EVENTS)


def test_a_connection_carries_one_answer_after_the_other() -> None:
    reader = StreamReader()
    for _ in range(3):
        answer = reader.feed(chunked(EVENTS), 7)
        assert answer is not None and len(answer.events) == len(EVENTS)


@pytest.mark.parametrize(
    "data", [b"nonsense\r\n\r\n", chunked(EVENTS).replace(b"\r\n0\r\n", b"\r\nzz\r\n")]
)
def test_what_is_no_http_is_refused(data: bytes) -> None:
    with pytest.raises(MalformedAnswer):
        StreamReader().feed(data, 0)


def test_text_usage_and_stamps_come_from_the_events() -> None:
    stream = read_answer(feed_in_pieces(chunked(EVENTS), []), 4, 100, max_tokens=3)
    assert stream.error == ""
    assert (stream.text, stream.worker, stream.sent_ns) == ("Hello!", 4, 100)
    assert (stream.prompt_tokens, stream.completion_tokens, stream.cached_tokens) == (5, 3, 2)
    assert (len(stream.token_ns), stream.events) == (3, 4)


def test_events_without_text_are_no_tokens() -> None:
    parts = [event(""), event("Hello"), event("", finish="length"), *EVENTS[-2:]]
    stream = read_answer(feed_in_pieces(chunked(parts), []), 0, 0, max_tokens=3)
    assert len(stream.token_ns) == 1 and stream.error == ""


@pytest.mark.parametrize(
    ("parts", "words"),
    [
        (EVENTS[:-1], "without"),
        ([*EVENTS[:3], event(usage={**USAGE, "completion_tokens": 2}), EVENTS[-1]], "instead of 3"),
        ([event("Hel"), 'data: {"error": {"message": "lost"}}', EVENTS[-1]], "lost"),
        ([event(""), *EVENTS[-2:]], "no text"),
    ],
)
def test_an_answer_that_is_not_whole_is_a_fault(parts: list[str], words: str) -> None:
    stream = read_answer(feed_in_pieces(chunked(parts), []), 0, 0, max_tokens=3)
    assert words in stream.error


def test_a_refusal_is_a_fault_with_the_servers_words() -> None:
    refusal = b'HTTP/1.1 429 Too Many\r\nContent-Length: 15\r\n\r\n{"error":"full"}'[:-1]
    answer = StreamReader().feed(refusal, 0)
    assert answer is not None
    assert (
        "429" in read_answer(answer, 0, 0, 3).error and "full" in read_answer(answer, 0, 0, 3).error
    )
