"""Server-sent events: their order, their errors, and what happens in silence."""

import json
import time

import pytest

from steelyard.backends.fake import Fault, FaultKind
from steelyard.gateway.config import GatewayConfig

from .byte_text import BEGIN_ID
from .conftest import OpenDoor
from .doors import Door
from .wire import Reply, connect, events, post, read_reply, request

CHAT = "/v1/chat/completions"
ASK = {"model": "fake", "messages": [{"role": "user", "content": "hi"}], "max_tokens": 6}


def stream(door: Door, **changes: object) -> Reply:
    return post(door, CHAT, ASK | {"stream": True} | changes)


def texts(reply: Reply) -> str:
    return "".join(
        choice["delta"].get("content", "")
        for event in events(reply.body)
        if event != "[DONE]" and "choices" in event
        for choice in event["choices"]
    )


def test_a_stream_says_how_proxies_must_treat_it(door: Door) -> None:
    headers = stream(door).headers
    assert headers["content-type"] == "text/event-stream; charset=utf-8"
    assert headers["cache-control"] == "no-cache"
    assert headers["x-accel-buffering"] == "no"
    assert headers["x-request-id"].startswith("req-")


def test_events_come_in_openais_order(door: Door) -> None:
    *parts, usage, done = events(stream(door, stream_options={"include_usage": True}).body)
    assert done == "[DONE]"
    assert parts[0]["choices"][0]["delta"] == {"role": "assistant", "content": ""}
    assert [p["choices"][0]["finish_reason"] for p in parts] == [None] * 6 + ["length"]
    assert usage["choices"] == []
    assert usage["usage"]["completion_tokens"] == 6
    assert len({p["id"] for p in (*parts, usage)}) == 1
    assert {p["object"] for p in parts} == {"chat.completion.chunk"}


def test_usage_is_only_sent_when_asked_for(door: Door) -> None:
    assert not any("usage" in e for e in events(stream(door).body) if e != "[DONE]")


def test_tokens_that_arrive_together_are_one_event(make_door: OpenDoor) -> None:
    door = make_door(tokens_per_chunk=3)
    parts = events(stream(door).body)
    contents = [p["choices"][0]["delta"]["content"] for p in parts[:-1]]
    assert [len(c) for c in contents] == [0, 3, 3]


def test_half_a_character_is_held_back_until_it_is_whole(make_door: OpenDoor) -> None:
    door = make_door(token_ids=tuple("é".encode()), context_tokens=8192)
    whole = post(door, CHAT, ASK | {"max_tokens": 64, "temperature": 0}).json
    reply = stream(door, max_tokens=64, temperature=0)
    assert texts(reply) == whole["choices"][0]["message"]["content"]
    assert "é" in texts(reply)
    assert whole["usage"]["completion_tokens"] == 64


def test_line_separators_in_text_cannot_cut_an_event(make_door: OpenDoor) -> None:
    door = make_door(token_ids=(*"\u2028".encode(), *"\x85".encode(), *b"\r\n"))
    reply = stream(door, max_tokens=500, temperature=0)
    assert len(reply.body.decode().splitlines()) == reply.body.count(b"\n")
    expected = door.engine.expected_ids(door.engine.recent_requests[-1])
    assert texts(reply) == bytes(expected).decode(errors="replace")


@pytest.mark.parametrize(
    ("kind", "status", "code"),
    [
        (FaultKind.OVERLOADED, 429, "overloaded"),
        (FaultKind.FAIL, 500, "engine_failed"),
        (FaultKind.DROP, 503, "engine_lost"),
        (FaultKind.GARBAGE, 500, "engine_failed"),
    ],
)
@pytest.mark.parametrize("streaming", [False, True])
def test_an_error_before_the_first_token_has_its_own_status(
    door: Door, kind: FaultKind, status: int, code: str, streaming: bool
) -> None:
    door.engine.inject(Fault(kind, delay_s=7.0))
    reply = post(door, CHAT, ASK | {"stream": streaming})
    assert (reply.status, reply.error["code"]) == (status, code)
    assert reply.headers.get("retry-after") == {429: "7", 503: "1"}.get(status)
    assert post(door, CHAT, ASK).status == 200


@pytest.mark.parametrize(
    ("kind", "code"),
    [
        (FaultKind.FAIL, "engine_failed"),
        (FaultKind.DROP, "engine_lost"),
        (FaultKind.DIE, "engine_lost"),
        (FaultKind.GARBAGE, "engine_failed"),
    ],
)
def test_an_error_in_the_middle_is_an_event_and_the_stream_ends_without_done(
    door: Door, kind: FaultKind, code: str
) -> None:
    door.engine.inject(Fault(kind, after_tokens=3))
    reply = stream(door)
    assert reply.status == 200
    *parts, error = events(reply.body)
    assert set(error["error"]) == {"message", "type", "param", "code"}
    assert error["error"]["code"] == code
    assert len(texts(reply)) == 3
    assert "[DONE]" not in parts


@pytest.mark.parametrize("kind", [FaultKind.FAIL, FaultKind.DROP])
def test_an_error_in_the_middle_of_a_complete_answer_is_never_half_an_answer(
    door: Door, kind: FaultKind
) -> None:
    door.engine.inject(Fault(kind, after_tokens=3))
    reply = post(door, CHAT, ASK)
    assert reply.status in (500, 503)
    assert reply.error["type"] in ("server_error", "service_unavailable_error")


def test_one_failing_choice_ends_the_others(door: Door) -> None:
    door.engine.inject(Fault(FaultKind.STALL, after_tokens=1))
    door.engine.inject(Fault(FaultKind.FAIL, after_tokens=2))
    reply = stream(door, n=2)
    assert events(reply.body)[-1]["error"]["code"] == "engine_failed"
    door.wait_for(lambda: len(door.engine.recent_aborts) == 2)


def test_comments_keep_a_silent_stream_alive(make_door: OpenDoor) -> None:
    door = make_door(GatewayConfig(port=0, keepalive_comment_s=0.1), ttft_s=0.55)
    reply = stream(door)
    beginning = reply.body.partition(b"data: ")[0]
    assert 2 <= beginning.count(b": keep-alive\n\n") <= 5
    assert texts(reply) != ""
    assert events(reply.body)[-1] == "[DONE]"


def test_a_stream_that_speaks_gets_no_comments(make_door: OpenDoor) -> None:
    door = make_door(GatewayConfig(port=0, keepalive_comment_s=0.2), itl_s=0.05)
    assert b"keep-alive" not in stream(door, max_tokens=10).body


def test_tokens_without_text_do_not_count_as_speech(make_door: OpenDoor) -> None:
    config = GatewayConfig(port=0, keepalive_comment_s=0.1, stall_timeout_s=0.4)
    door = make_door(config, token_ids=(BEGIN_ID,), itl_s=0.05)
    reply = stream(door, max_tokens=12)
    assert reply.body.count(b": keep-alive\n\n") >= 2
    assert events(reply.body)[-1] == "[DONE]"


def test_an_error_after_a_comment_is_an_event(make_door: OpenDoor) -> None:
    door = make_door(GatewayConfig(port=0, keepalive_comment_s=0.05), ttft_s=0.2)
    door.engine.inject(Fault(FaultKind.FAIL))
    reply = stream(door)
    assert reply.status == 200
    assert events(reply.body)[-1]["error"]["code"] == "engine_failed"


@pytest.mark.parametrize("streaming", [False, True])
def test_an_engine_that_stalls_is_given_up(make_door: OpenDoor, streaming: bool) -> None:
    door = make_door(GatewayConfig(port=0, stall_timeout_s=0.2))
    door.engine.inject(Fault(FaultKind.STALL, after_tokens=2 if streaming else 0))
    reply = post(door, CHAT, ASK | {"stream": streaming})
    error = events(reply.body)[-1]["error"] if streaming else reply.error
    assert error["code"] == "engine_stalled"
    assert reply.status == (200 if streaming else 504)
    door.wait_for(lambda: len(door.engine.recent_aborts) == 1)


def test_the_first_event_does_not_wait_for_the_last(make_door: OpenDoor) -> None:
    door = make_door(itl_s=0.1)
    with connect(door) as sock:
        sock.sendall(request(CHAT, json.dumps(ASK | {"stream": True}).encode()))
        start_s = time.monotonic()
        first = sock.recv(65536)
        assert time.monotonic() - start_s < 0.3
        assert b'"role":"assistant"' in first
        rest = bytearray(first)
        assert events(read_reply(sock, rest).body)[-1] == "[DONE]"


def test_token_ids_are_returned_when_asked_for(door: Door) -> None:
    whole = post(door, CHAT, ASK | {"return_token_ids": True, "seed": 3}).json
    request_ = door.engine.recent_requests[-1]
    assert whole["prompt_token_ids"] == list(request_.prompt_ids)
    assert whole["choices"][0]["token_ids"] == list(door.engine.expected_ids(request_))
    parts = events(stream(door, return_token_ids=True, seed=3).body)[:-1]
    assert parts[0]["prompt_token_ids"] == list(request_.prompt_ids)
    ids = [i for p in parts for i in p["choices"][0].get("token_ids", [])]
    assert ids == whole["choices"][0]["token_ids"]
