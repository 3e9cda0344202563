"""What clients get from the mock: both endpoints, streamed or not, over real sockets."""

import json
from typing import Any

import openai
import pytest

from .conftest import ReadTruth, StartMock
from .wire import Wire, ask, chat, completion


@pytest.mark.parametrize("call", [chat, completion])
async def test_streaming_and_complete_answers_say_the_same(
    start_mock: StartMock, call: Any
) -> None:
    url = (await start_mock()).url
    streamed = await call(url, stream_options={"include_usage": True})
    whole = await call(url, stream=False)
    assert streamed.status == whole.status == 200
    assert streamed.is_done
    assert streamed.text == whole.text
    assert len(whole.text.split()) == 6
    assert streamed.finish_reason == whole.finish_reason == "stop"
    assert streamed.usage == whole.usage
    assert whole.usage == {"prompt_tokens": 3, "completion_tokens": 6, "total_tokens": 9}


async def test_the_official_client_understands_every_kind_of_answer(start_mock: StartMock) -> None:
    server = await start_mock(reasoning_tokens=2)
    client = openai.AsyncOpenAI(base_url=f"{server.url}/v1", api_key="none", max_retries=0)
    messages: Any = [{"role": "user", "content": "one two"}]
    whole = await client.chat.completions.create(model="mock", messages=messages)
    stream = await client.chat.completions.create(model="mock", messages=messages, stream=True)
    parts = [chunk.choices[0].delta.content or "" async for chunk in stream]
    assert "".join(parts) == whole.choices[0].message.content
    assert whole.usage is not None and whole.usage.completion_tokens_details is not None
    assert whole.usage.completion_tokens_details.reasoning_tokens == 2
    assert [model.id async for model in client.models.list()] == ["mock"]
    with pytest.raises(openai.BadRequestError):
        await client.chat.completions.create(model="mock", messages=[])
    await client.close()


async def test_max_tokens_cuts_and_ignore_eos_extends(start_mock: StartMock) -> None:
    url = (await start_mock()).url
    cut = await completion(url, max_tokens=2, stream=False)
    natural = await completion(url, max_tokens=20, stream=False)
    extended = await completion(url, max_tokens=20, ignore_eos=True, stream=False)
    modern = await chat(url, max_completion_tokens=4, stream=False)
    counts = [r.usage["completion_tokens"] for r in (cut, natural, extended, modern)]
    assert counts == [2, 6, 20, 4]
    reasons = [r.finish_reason for r in (cut, natural, extended, modern)]
    assert reasons == ["length", "stop", "length", "length"]


async def test_stop_strings_end_the_text_before_them(start_mock: StartMock) -> None:
    url = (await start_mock()).url
    words = (await completion(url)).text.split()
    stopped = await completion(url, stop=[f"{words[2]} {words[3][:2]}"], stream=False)
    streamed = await completion(url, stop=f"{words[2]} {words[3][:2]}")
    assert stopped.text.split() == words[:2]
    assert streamed.text == stopped.text
    assert stopped.finish_reason == "stop"
    assert stopped.usage["completion_tokens"] == 4


async def test_bundled_chunks_hold_several_tokens(start_mock: StartMock) -> None:
    url = (await start_mock(bundle_tokens=4, role_chunk_ms=None)).url
    events = (await chat(url, return_token_ids=True)).events
    ids = [e["choices"][0].get("token_ids") for e in events]
    assert [len(one) for one in ids if one] == [4, 2]


async def test_the_role_comes_alone_and_early_or_not_at_all(start_mock: StartMock) -> None:
    early = await chat((await start_mock()).url)
    never = await chat((await start_mock(role_chunk_ms=None)).url)
    assert early.events[0]["choices"][0]["delta"] == {"role": "assistant", "content": ""}
    assert not any("role" in e["choices"][0]["delta"] for e in never.events)


async def test_empty_chunks_and_comments_come_in_between(start_mock: StartMock) -> None:
    server = await start_mock(empty_chunk_share=1, comment_ms=10, ttft_ms=35, role_chunk_ms=None)
    reply = await chat(server.url)
    assert reply.blocks[:4] == [": still here"] * 3 + reply.blocks[3:4]
    empty = [e for e in reply.events if e["choices"][0]["delta"].get("content") == ""]
    assert len(empty) == 6
    assert len(reply.text.split()) == 6


@pytest.mark.parametrize("field", ["reasoning_content", "reasoning"])
async def test_reasoning_comes_first_in_a_field_of_its_own(
    start_mock: StartMock, field: str
) -> None:
    server = await start_mock(reasoning_tokens=2, reasoning_field=field, bundle_tokens=3)
    reply = await chat(server.url, stream_options={"include_usage": True})
    deltas = [e["choices"][0]["delta"] for e in reply.events if e["choices"]]
    reasoning = "".join(delta.get(field, "") for delta in deltas)
    assert len(reasoning.split()) == 2
    assert len(reply.text.split()) == 4
    assert reply.usage["completion_tokens_details"] == {"reasoning_tokens": 2}


async def test_usage_is_reported_when_asked_always_or_never(start_mock: StartMock) -> None:
    asked, always, never = [
        (await start_mock(usage=mode)).url for mode in ("asked", "always", "never")
    ]
    include = {"include_usage": True}
    assert (await chat(asked)).usage is None
    assert (await chat(asked, stream_options=include)).usage is not None
    assert (await chat(always)).usage is not None
    assert (await chat(never, stream_options=include)).usage is None
    assert (await chat(never, stream=False)).usage is None


async def test_running_usage_counts_up(start_mock: StartMock) -> None:
    url = (await start_mock(role_chunk_ms=None)).url
    options = {"include_usage": True, "continuous_usage_stats": True}
    events = (await chat(url, stream_options=options)).events
    counts = [e["usage"]["completion_tokens"] for e in events if e.get("usage")]
    assert counts == [1, 2, 3, 4, 5, 6, 6]


async def test_a_client_that_counts_words_disagrees_by_the_asked_factor(
    start_mock: StartMock,
) -> None:
    url = (await start_mock(client_tokens_per_token=2)).url
    reply = await chat(url, stream_options={"include_usage": True})
    assert reply.usage["completion_tokens"] == 6
    assert len(reply.text.split()) == 12


async def test_connections_are_kept_and_requests_may_be_pipelined(start_mock: StartMock) -> None:
    wire = await Wire.open((await start_mock()).url)
    body = json.dumps({"prompt": "x", "stream": True}).encode()
    head = b"POST /v1/completions HTTP/1.1\r\ncontent-length: %d\r\n\r\n" % len(body)
    wire.writer.write((head + body) * 2 + b"GET /health HTTP/1.1\r\n\r\n")
    replies = [await wire.reply() for _ in range(3)]
    assert [reply.status for reply in replies] == [200, 200, 200]
    assert replies[0].is_done and replies[1].is_done
    wire.close()


async def test_bodies_may_come_in_chunks_and_in_pieces(start_mock: StartMock) -> None:
    wire = await Wire.open((await start_mock()).url)
    wire.writer.write(b"POST /v1/completions HTTP/1.1\r\ntransfer-encoding: chunked\r\n\r\n")
    for piece in (b'b\r\n{"prompt": \r\n', b'4\r\n"a"}\r', b"\n0\r\n", b"\r\n"):
        await wire.writer.drain()
        wire.writer.write(piece)
    assert (await wire.reply()).status == 200
    wire.close()


@pytest.mark.parametrize(
    ("body", "status"),
    [
        (b"{", 400),
        (b"[]", 400),
        (b'{"prompt": "\xff"}', 400),
        (b'{"prompt": []}', 400),
        (b'{"prompt": ["a", "b"]}', 400),
        (b'{"prompt": "a", "n": 2}', 400),
        (b'{"prompt": "a", "max_tokens": 0}', 400),
        (b'{"prompt": "a", "max_tokens": 200000, "ignore_eos": true}', 400),
        (b"[" * 100_000, 400),
    ],
)
async def test_bad_bodies_are_refused_in_openai_shape(
    start_mock: StartMock, body: bytes, status: int
) -> None:
    reply = await ask((await start_mock()).url, "POST", "/v1/completions", body)
    assert reply.status == status
    assert set(reply.json["error"]) == {"message", "type", "param", "code"}


async def test_unknown_paths_methods_and_broken_http_are_refused(start_mock: StartMock) -> None:
    url = (await start_mock()).url
    assert (await ask(url, "GET", "/nothing")).status == 404
    assert (await ask(url, "GET", "/v1/completions")).status == 405
    wire = await Wire.open(url)
    wire.writer.write(b"nonsense\r\n\r\n")
    assert (await wire.reply()).status == 400


async def test_a_client_that_leaves_is_noted_and_frees_its_slot(
    start_mock: StartMock, truth_of: ReadTruth
) -> None:
    server = await start_mock(slots=1, ttft_ms=60_000)
    wire = await Wire.open(server.url)
    wire.writer.write(b'POST /v1/completions HTTP/1.1\r\ncontent-length: 15\r\n\r\n{"prompt": "x"}')
    await wire.writer.drain()
    wire.close()
    assert (await ask(server.url, "GET", "/health")).status == 200
    for _ in range(100):
        _, requests = truth_of(server)
        if requests:
            break
        await ask(server.url, "GET", "/health")
    assert [request.outcome for request in requests] == ["client_gone"]
    metrics = (await ask(server.url, "GET", "/metrics")).body.decode()
    assert 'vllm:num_requests_running{model_name="mock"} 0' in metrics
