"""Every malformed or hostile request is refused precisely, quickly, and without consequences."""

import socket
import time
from collections.abc import Iterator

import pytest

from .bad_requests import ROWS, BadRequest
from .doors import Door, open_door
from .wire import Reply, connect, post, read_reply

LIMIT_S = 0.05
TRIES = 5
"""The fastest counts: the claim is about the door, not about what else the machine does."""


@pytest.fixture(scope="module")
def door() -> Iterator[Door]:
    with open_door() as opened:
        yield opened


def ask(door: Door, row: BadRequest) -> tuple[Reply, float]:
    """The answer, and how long it took from the last byte sent."""
    with connect(door) as sock:
        sock.sendall(row.sent)
        if row.ends_input:
            sock.shutdown(socket.SHUT_WR)
        sent_s = time.perf_counter()
        reply = read_reply(sock)
        return reply, time.perf_counter() - sent_s


@pytest.mark.parametrize("row", ROWS, ids=[row.name for row in ROWS])
def test_a_bad_request_is_refused(door: Door, row: BadRequest) -> None:
    tries = [ask(door, row) for _ in range(TRIES)]
    for reply, _ in tries:
        error = reply.error
        assert (reply.status, error["code"], error["param"]) == (row.status, row.code, row.param)
        assert reply.headers["content-type"] == "application/json"
        for leak in ("Traceback", "0x", "/work", ".py", "site-packages"):
            assert leak not in error["message"]
    assert min(took_s for _, took_s in tries) <= LIMIT_S


def test_the_table_is_long_enough_and_names_are_unique() -> None:
    assert len(ROWS) >= 60
    assert len({row.name for row in ROWS}) == len(ROWS)


def test_the_door_still_serves_after_all_of_them(door: Door) -> None:
    for row in ROWS:
        ask(door, row)
    message = {"role": "user", "content": "hi"}
    answer = post(door, "/v1/chat/completions", {"model": "fake", "messages": [message]})
    assert answer.status == 200
    assert door.engine.recent_aborts == ()
    assert not [r for r in door.engine.recent_requests if len(r.prompt_ids) > 100]


def test_a_suggestion_is_made_for_a_misspelt_parameter(door: Door) -> None:
    message = {"role": "user", "content": "hi"}
    answer = post(
        door, "/v1/chat/completions", {"model": "fake", "messages": [message], "temprature": 1}
    )
    assert "Did you mean temperature?" in answer.error["message"]


@pytest.mark.parametrize(
    "harmless",
    [
        {"tools": [], "tool_choice": "none"},
        {"response_format": {"type": "text"}},
        {"user": "u", "metadata": {"a": "b"}, "store": False, "service_tier": "auto"},
        {"safety_identifier": "x", "prompt_cache_key": "y", "parallel_tool_calls": True},
        {"functions": None, "function_call": None, "audio": None, "logit_bias": None},
        {"temperature": None, "top_p": None, "n": None, "stop": None, "stream": None},
        {"top_k": -1, "min_p": 0, "logprobs": False},
        {"modalities": ["text"], "reasoning_effort": None, "best_of": 1},
    ],
)
def test_parameters_that_change_nothing_are_accepted(door: Door, harmless: dict) -> None:
    message = {"role": "user", "content": "hi"}
    body = {"model": "fake", "messages": [message], "max_tokens": 1} | harmless
    assert post(door, "/v1/chat/completions", body).status == 200


def test_an_answer_can_be_sent_back_as_the_client_got_it(door: Door) -> None:
    messages = [
        {"role": "developer", "content": [{"type": "text", "text": "Be brief."}]},
        {"role": "user", "content": "hi", "name": "ann"},
        {
            "role": "assistant",
            "content": "hello",
            "refusal": None,
            "annotations": [],
            "audio": None,
            "function_call": None,
            "tool_calls": None,
        },
        {"role": "user", "content": "again"},
    ]
    body = {"model": "fake", "messages": messages, "max_tokens": 1}
    assert post(door, "/v1/chat/completions", body).status == 200
    prompt = bytes(i for i in door.engine.recent_requests[-1].prompt_ids if i < 256).decode()
    assert prompt == "system:Be brief.user:hiassistant:hellouser:againassistant:"
