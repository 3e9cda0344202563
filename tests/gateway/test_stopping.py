"""Where a completion ends, and what is shown and counted there."""

from typing import Any

import pytest

from .conftest import OpenDoor
from .doors import END_ID, Door
from .wire import Reply, events, post

TEXT = "/v1/completions"
ASK: dict[str, Any] = {"model": "fake", "prompt": "go", "max_tokens": 40, "temperature": 0}


def complete(door: Door, **changes: Any) -> Any:
    reply = post(door, TEXT, ASK | changes)
    assert reply.status == 200, reply.body
    return reply.json


def streamed_text(reply: Reply) -> tuple[str, str | None]:
    """Text and finish reason of the only choice."""
    choices = [c for e in events(reply.body) if e != "[DONE]" for c in e["choices"]]
    return "".join(c["text"] for c in choices), choices[-1]["finish_reason"]


@pytest.mark.parametrize("tokens_per_chunk", [1, 4])
def test_text_ends_before_a_stop_string_and_usage_ends_with_it(
    make_door: OpenDoor, tokens_per_chunk: int
) -> None:
    door = make_door(tokens_per_chunk=tokens_per_chunk)
    whole = complete(door)["choices"][0]["text"]
    stop = whole[10:13]
    at = whole.index(stop)
    answer = complete(door, stop=stop)
    assert answer["choices"][0]["text"] == whole[:at]
    assert answer["choices"][0]["finish_reason"] == "stop"
    assert answer["usage"]["completion_tokens"] == at + 3
    assert streamed_text(post(door, TEXT, ASK | {"stop": stop, "stream": True})) == (
        whole[:at],
        "stop",
    )
    door.wait_for(lambda: len(door.engine.recent_aborts) == 2)


def test_usage_names_the_cached_tokens_even_when_a_stop_string_ends_the_stream(
    make_door: OpenDoor,
) -> None:
    door = make_door(block_tokens=16)
    asked = {"prompt": "x" * 40}
    whole = complete(door, **asked)["choices"][0]["text"]
    answer = complete(door, stop=whole[10:13], **asked)
    assert answer["choices"][0]["finish_reason"] == "stop"
    assert answer["usage"]["prompt_tokens_details"]["cached_tokens"] == 32


def test_the_stop_string_is_shown_when_asked_for(door: Door) -> None:
    whole = complete(door)["choices"][0]["text"]
    stop = whole[10:13]
    answer = complete(door, stop=[stop, "never"], include_stop_str_in_output=True)
    assert answer["choices"][0]["text"] == whole[: whole.index(stop) + 3]


def test_a_beginning_of_a_stop_string_is_not_lost(door: Door) -> None:
    whole = complete(door)["choices"][0]["text"]
    answer = complete(door, stop=whole[-2:] + "?")
    assert answer["choices"][0]["text"] == whole
    assert answer["choices"][0]["finish_reason"] == "length"
    streamed = post(door, TEXT, ASK | {"stop": whole[-2:] + "?", "stream": True})
    assert streamed_text(streamed) == (whole, "length")


def test_no_stop_string_counts_before_min_tokens(door: Door) -> None:
    whole = complete(door)["choices"][0]["text"]
    answer = complete(door, stop=whole[0], min_tokens=1)
    assert answer["usage"]["completion_tokens"] > 1
    assert complete(door, stop=whole[0])["choices"][0]["text"] == ""


def test_the_models_own_end_is_not_shown(make_door: OpenDoor) -> None:
    door = make_door(output_tokens=5)
    answer = complete(door)
    assert len(answer["choices"][0]["text"]) == 4
    assert answer["choices"][0]["finish_reason"] == "stop"
    assert answer["usage"]["completion_tokens"] == 5
    shown = complete(door, skip_special_tokens=False, include_stop_str_in_output=True)
    assert shown["choices"][0]["text"].endswith(f"<{END_ID}>")
    assert len(complete(door, ignore_eos=True)["choices"][0]["text"]) == 40


def test_a_stop_token_ends_the_text_without_being_shown(door: Door) -> None:
    whole = complete(door)["choices"][0]["text"]
    letter = whole[7]
    answer = complete(door, stop_token_ids=[ord(letter)])
    assert answer["choices"][0]["text"] == whole[: whole.index(letter)]
    assert answer["choices"][0]["finish_reason"] == "stop"
    assert answer["usage"]["completion_tokens"] == whole.index(letter) + 1


def test_logprobs_end_with_the_tokens_that_count(make_door: OpenDoor) -> None:
    door = make_door(tokens_per_chunk=8)
    whole = complete(door)["choices"][0]["text"]
    stop = whole[10:12]
    answer = complete(door, stop=stop, logprobs=0, return_token_ids=True)
    count = whole.index(stop) + 2
    assert len(answer["choices"][0]["logprobs"]["tokens"]) == count
    assert bytes(answer["choices"][0]["token_ids"]).decode() == whole[:count]


def test_choices_count_together_and_prompts_once(make_door: OpenDoor) -> None:
    door = make_door(output_tokens=6)
    usage = complete(door, prompt=["abc", "defg"], n=3)["usage"]
    begin_tokens = 2
    assert usage["prompt_tokens"] == 7 + begin_tokens
    assert usage["completion_tokens"] == 36
    assert usage["total_tokens"] == 36 + 7 + begin_tokens


def test_cached_prompt_tokens_are_reported(door: Door) -> None:
    long = "x" * 100
    assert complete(door, prompt=long)["usage"]["prompt_tokens_details"]["cached_tokens"] == 0
    assert complete(door, prompt=long)["usage"]["prompt_tokens_details"]["cached_tokens"] == 96


def test_without_max_tokens_a_completion_has_sixteen_and_a_chat_all_that_fit(
    make_door: OpenDoor,
) -> None:
    door = make_door(context_tokens=300)
    text = {"model": "fake", "prompt": "go"}
    assert post(door, TEXT, text).json["usage"]["completion_tokens"] == 16
    chat = {"model": "fake", "messages": [{"role": "user", "content": "go"}]}
    usage = post(door, "/v1/chat/completions", chat).json["usage"]
    assert usage["total_tokens"] == 300


def test_the_context_error_names_the_numbers(make_door: OpenDoor) -> None:
    door = make_door(context_tokens=100)
    error = post(door, TEXT, ASK | {"prompt": "x" * 79, "max_tokens": 21}).error
    assert error["code"] == "context_length_exceeded"
    for number in ("100", "80", "21"):
        assert number in error["message"]
    assert complete(door, prompt="x" * 79, max_tokens=20)["usage"]["total_tokens"] == 100
