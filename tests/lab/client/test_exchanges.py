"""What streams of different servers come to: first token, tokens, kinds, outcome."""

import json
import math

import pytest

from steelyard.lab.client.exchange import Exchange
from steelyard.lab.client.recorder import Recorder, event_tokens
from steelyard.lab.outcomes import EventKind, Outcome, RequestFlag

pytestmark = pytest.mark.usefixtures("loop")


@pytest.fixture
async def loop() -> None:
    """Exchanges belong to an event loop."""


def chat(content=None, finish=None, **delta) -> dict:
    delta = ({"content": content} if content is not None else {}) | delta
    return {"choices": [{"index": 0, "delta": delta, "finish_reason": finish}]}


def usage(prompt: int, completion: int, **more) -> dict:
    return {"prompt_tokens": prompt, "completion_tokens": completion, **more}


VLLM = [
    chat("", role="assistant"),
    chat("Hello"),
    chat(" world"),
    chat("", finish="stop"),
    {"choices": [], "usage": usage(7, 3)},
]
LLAMA_CPP = [
    chat(None, role="assistant") | {"id": "x", "object": "chat.completion.chunk"},
    chat("Hello"),
    chat(" world"),
    {"choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}], "timings": {"n": 1}},
    {"choices": [], "usage": usage(7, 3), "timings": {}},
]
SGLANG = [
    chat("", role="assistant", reasoning_content=None, tool_calls=None) | {"usage": None},
    chat("Hello"),
    chat(" world"),
    {"choices": [{"delta": {"content": None}, "finish_reason": "stop", "matched_stop": 2}]},
    {"choices": [], "usage": usage(7, 3, prompt_tokens_details=None, reasoning_tokens=0)},
]
TEXT = [
    {"choices": [{"index": 0, "text": "Hello", "finish_reason": None}]},
    {"choices": [{"index": 0, "text": " world", "finish_reason": None}]},
    {"choices": [{"index": 0, "text": "", "finish_reason": "stop"}], "usage": usage(7, 3)},
]


@pytest.mark.parametrize(
    "events", [VLLM, LLAMA_CPP, SGLANG, TEXT], ids=["vllm", "llama", "sglang", "text"]
)
async def test_streams_of_all_servers_give_the_same_tokens(events) -> None:
    exchange = played(events)
    assert exchange.outcome is Outcome.COMPLETE
    tokens, flags = event_tokens(exchange)
    first = 2.0 if events is not TEXT else 1.0
    assert tokens == [
        (first, 1, EventKind.ANSWER),
        (first + 1, 1, EventKind.ANSWER),
        (first + 2, 1, EventKind.ANSWER),
    ], "role and usage events are no tokens; the end token came with the finish reason"
    assert flags == RequestFlag(0)
    row = recorded(exchange)
    assert (row["output_usage"], row["output_chunks"], row["output_tokens"]) == (3, 2, 3)
    assert row["prompt_tokens"] == 7
    assert row["first_token_s"] == first
    assert row["end_s"] == len(events)


async def test_the_role_is_not_the_first_token() -> None:
    row = recorded(played([chat("", role="assistant"), chat(""), chat("a", finish="stop")]))
    assert row["first_token_s"] == 3


@pytest.mark.parametrize("field", ["reasoning_content", "reasoning"])
async def test_reasoning_counts_for_the_first_token_and_is_kept_apart(field: str) -> None:
    events = [chat(**{field: "hm"}), chat(**{field: "so"}), chat("Yes"), chat(finish="stop")]
    details = {"completion_tokens_details": {"reasoning_tokens": 2}}
    row = recorded(played([*events, {"choices": [], "usage": usage(5, 3, **details)}]))
    assert (row["first_token_s"], row["first_answer_s"]) == (1, 3)
    assert row["reasoning_tokens"] == 2


async def test_a_call_of_a_tool_is_a_token() -> None:
    call = [{"index": 0, "function": {"arguments": '{"a"'}}]
    row = recorded(played([chat(tool_calls=call), chat(finish="tool_calls")]))
    assert row["first_token_s"] == 1


async def test_token_ids_say_exactly_what_was_bundled() -> None:
    events = [with_ids("a", [1]), with_ids("", [2]), with_ids("bc", [3, 4, 5]), with_ids("d", [])]
    exchange = played([*events, chat(finish="stop")])
    tokens, flags = event_tokens(exchange)
    assert [count for _, count, _ in tokens] == [1, 1, 3, 0]
    assert flags == RequestFlag.BUNDLED
    row = recorded(exchange)
    assert (row["output_ids"], row["output_tokens"], row["events"]) == (5, 5, 3)
    assert row["last_token_s"] == 3, "the last event only flushed text"


async def test_bundles_of_unknown_size_are_shared_out_by_length_and_flagged() -> None:
    events = [chat("aaaa"), chat("bb"), chat("cccccccccc"), chat(finish="length")]
    tokens, flags = event_tokens(played([*events, {"choices": [], "usage": usage(5, 8)}]))
    assert [count for _, count, _ in tokens] == [2, 2, 4]
    assert flags == RequestFlag.BUNDLED | RequestFlag.ESTIMATED


async def test_an_end_token_without_its_own_event_is_not_a_bundle() -> None:
    events = [chat("a"), chat("b", finish="stop"), {"choices": [], "usage": usage(5, 3)}]
    tokens, flags = event_tokens(played(events))
    assert [count for _, count, _ in tokens] == [1, 1]
    assert flags == RequestFlag(0)


async def test_without_usage_every_event_is_a_token() -> None:
    row = recorded(played([chat("a"), chat("b"), chat(finish="stop")]))
    assert (row["output_tokens"], row["output_usage"], row["prompt_tokens"]) == (2, -1, -1)


async def test_cached_tokens_are_kept() -> None:
    details = usage(100, 1, prompt_tokens_details={"cached_tokens": 64})
    row = recorded(played([chat("a", finish="stop"), {"choices": [], "usage": details}]))
    assert row["cached_tokens"] == 64


@pytest.mark.parametrize(
    ("events", "outcome"),
    [
        ([chat("a"), {"error": {"message": "out of memory", "code": 500}}], Outcome.STREAM_ERROR),
        ([chat("a"), {"error": "out of memory"}], Outcome.STREAM_ERROR),
        ([chat("a"), chat("b")], Outcome.TRUNCATED),
        ([chat("", role="assistant"), chat("", finish="stop")], Outcome.EMPTY),
        ([chat("a"), "not json"], Outcome.MALFORMED),
        ([chat("a"), [1, 2]], Outcome.MALFORMED),
        ([chat("a"), '{"x":' + "[" * 100_000], Outcome.MALFORMED),
        ([chat("a"), {"choices": "none"}], Outcome.MALFORMED),
    ],
)
async def test_streams_that_go_wrong_are_failures(events, outcome: Outcome) -> None:
    assert played(events, done=False).outcome is outcome


async def test_a_stream_that_ends_with_done_alone_is_complete() -> None:
    assert played([chat("a"), chat("b")]).outcome is Outcome.COMPLETE


async def test_an_exchange_ends_once() -> None:
    exchange = played([chat("a", finish="stop")])
    exchange.fail(Outcome.RESET, 9.0, "later")
    exchange.finish(9.0)
    assert (exchange.outcome, exchange.end_s) == (Outcome.COMPLETE, 1.0)


async def test_a_failure_is_on_record_without_latencies_but_with_its_message() -> None:
    recorder = Recorder(worker=3, start_s=0)
    exchange = played([chat("a"), {"error": {"message": "boom"}}], done=False)
    recorder.add(exchange)
    records = recorder.records()
    assert not records.is_complete.any()
    assert records.messages == {(Outcome.STREAM_ERROR, "boom"): 1}
    assert records.requests["worker"][0] == 3


async def test_whole_answers_have_no_first_token() -> None:
    body = {"choices": [{"message": {"content": "Hello"}, "finish_reason": "stop"}]}
    exchange = new_exchange()
    exchange.take_answer(json.dumps(body | {"usage": usage(3, 2)}).encode(), 4.0)
    exchange.finish(4.0)
    row = recorded(exchange)
    assert math.isnan(row["first_token_s"])
    assert (row["outcome"], row["output_tokens"], row["end_s"]) == (Outcome.COMPLETE, 2, 4)
    assert row["flags"] & RequestFlag.NOT_STREAMED


def with_ids(text: str, ids: list[int]) -> dict:
    return {"choices": [{"delta": {"content": text}, "token_ids": ids}]}


def new_exchange() -> Exchange:
    exchange = Exchange(session=0, turn=0, scheduled_s=0.0)
    exchange.dispatched_s = exchange.released_s = exchange.sent_s = 0.0
    return exchange


def played(events: list, *, done: bool = True) -> Exchange:
    """Event n comes at n seconds, counted from 1."""
    exchange = new_exchange()
    for at, event in enumerate(events, start=1):
        data = event if isinstance(event, str) else json.dumps(event)
        exchange.take_event(data.encode(), float(at))
    if done:
        exchange.take_event(b"[DONE]", float(len(events)))
    exchange.finish(float(len(events)))
    return exchange


def recorded(exchange: Exchange):
    recorder = Recorder(worker=0, start_s=0.0)
    recorder.add(exchange)
    return recorder.records().requests[0]
