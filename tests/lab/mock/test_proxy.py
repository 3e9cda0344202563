"""The fault proxy: transparent but for what was planted, and each fault is what it says."""

import json
from collections.abc import AsyncIterator
from typing import Any

import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer

from steelyard.contract.errors import SettingsError
from steelyard.lab.mock.proxy import FAULTS, make_faults

from .conftest import StartMock, StartProxy
from .wire import Reply, Wire, ask, chat, completion

USAGE = {"stream_options": {"include_usage": True}}


@pytest.fixture
async def echo() -> AsyncIterator[str]:
    """An upstream whose answer holds the request it got, and logprobs."""

    async def answer(request: web.Request) -> web.Response:
        asked = await request.json() if request.can_read_body else None
        choice = {"index": 0, "message": {"content": "x"}, "logprobs": LOGPROBS}
        seen = {"asked": asked, "path": request.path_qs, "key": request.headers.get("x-key")}
        return web.json_response({"model": "m", "choices": [choice], "seen": seen})

    app = web.Application()
    app.router.add_route("*", "/{path:.*}", answer)
    server = TestServer(app)
    await server.start_server()
    yield f"http://127.0.0.1:{server.port}"
    await server.close()


LOGPROBS = {
    "content": [
        {"token": "a", "logprob": -1.0, "top_logprobs": [{"token": "a"}]},
        {"token": "b", "logprob": -1.0, "top_logprobs": [{"token": "b"}]},
    ]
}


def test_there_are_fifteen_described_faults() -> None:
    assert len(FAULTS) == 15
    assert all(fault.description for fault in FAULTS.values())
    with pytest.raises(SettingsError, match="missing_done"):
        make_faults(["nothing"])


async def test_without_faults_everything_passes_unchanged(
    start_mock: StartMock, start_proxy: StartProxy
) -> None:
    upstream = (await start_mock(comment_ms=2)).url
    url = await start_proxy(upstream, [])
    for call, asked in ((chat, USAGE), (completion, USAGE), (chat, {"stream": False})):
        direct, passed = await call(upstream, **asked), await call(url, **asked)
        assert _without_ids(passed) == _without_ids(direct)
        assert passed.headers["content-type"] == direct.headers["content-type"]
        assert passed.is_done == direct.is_done
    refused = await chat(url, messages=[])
    assert (refused.status, refused.json["error"]["param"]) == (400, "messages")
    assert (await ask(url, "GET", "/v1/models")).json["data"][0]["id"] == "mock"


async def test_headers_and_queries_reach_the_upstream(echo: str, start_proxy: StartProxy) -> None:
    url = await start_proxy(echo, [])
    reply = await ask(url, "POST", "/v1/x?a=b%20c", b"{}", "x-key: 7")
    assert reply.json["seen"] == {"asked": {}, "path": "/v1/x?a=b%20c", "key": "7"}


async def test_an_upstream_that_is_gone_is_a_502(start_proxy: StartProxy) -> None:
    reply = await chat(await start_proxy("http://127.0.0.1:9", []))
    assert reply.status == 502


async def test_a_client_that_leaves_leaves_the_upstream_too(
    start_mock: StartMock, start_proxy: StartProxy
) -> None:
    mock = await start_mock(ttft_ms=60_000)
    url = await start_proxy(mock.url, [])
    wire = await Wire.open(url)
    wire.writer.write(b'POST /v1/completions HTTP/1.1\r\ncontent-length: 15\r\n\r\n{"prompt": "x"}')
    running = 'vllm:num_requests_running{model_name="mock"} '
    await _until_metric(mock.url, running + "1")
    wire.close()
    await _until_metric(mock.url, running + "0")


@pytest.mark.parametrize(
    ("name", "asked", "seen"),
    [
        ("ignored_stop", {"stop": "x", "seed": 1}, {"seed": 1}),
        ("ignored_max_tokens", {"max_tokens": 10}, {"max_tokens": 25}),
        ("ignored_n", {"n": 3, "seed": 1}, {"seed": 1}),
        ("truncated_context", {"prompt": "ab" * 2000}, {"prompt": "ab" * 1000}),
        ("truncated_context", {"prompt": list(range(600))}, {"prompt": list(range(88, 600))}),
        (
            "truncated_context",
            {"messages": [{"role": "user", "content": "ab" * 2000}]},
            {"messages": [{"role": "user", "content": "ab" * 1000}]},
        ),
    ],
)
async def test_faults_of_requests(
    echo: str, start_proxy: StartProxy, name: str, asked: dict[str, Any], seen: dict[str, Any]
) -> None:
    url = await start_proxy(echo, [name])
    reply = await ask(url, "POST", "/v1/completions", json.dumps(asked).encode())
    assert reply.json["seen"]["asked"] == seen


async def test_an_ignored_seed_differs_each_time(echo: str, start_proxy: StartProxy) -> None:
    url = await start_proxy(echo, ["ignored_seed"])
    replies = [await ask(url, "POST", "/v1/completions", b'{"seed": 1}') for _ in range(2)]
    first, second = (reply.json["seen"]["asked"]["seed"] for reply in replies)
    assert first != second
    without = await ask(url, "POST", "/v1/completions", b"{}")
    assert without.json["seen"]["asked"] == {}


async def test_wrong_logprobs_are_short_and_without_alternatives(
    echo: str, start_proxy: StartProxy
) -> None:
    url = await start_proxy(echo, ["wrong_logprobs"])
    reply = await ask(url, "POST", "/v1/chat/completions", b"{}")
    (choice,) = reply.json["choices"]
    assert choice["logprobs"]["content"] == [{"token": "a", "logprob": -1.0, "top_logprobs": []}]


class TestAnswers:
    """Faults of answers, in front of a mock."""

    @pytest.fixture
    async def pair(self, start_mock: StartMock) -> str:
        return (await start_mock()).url

    async def test_wrong_usage(self, pair: str, start_proxy: StartProxy) -> None:
        url = await start_proxy(pair, ["wrong_usage"])
        for asked in (USAGE, {"stream": False}):
            usage = (await chat(url, **asked)).usage
            assert (usage["completion_tokens"], usage["total_tokens"]) == (7, 10)

    @pytest.mark.parametrize("call", [chat, completion])
    async def test_dropped_last_token(self, pair: str, start_proxy: StartProxy, call: Any) -> None:
        url = await start_proxy(pair, ["dropped_last_token"])
        words = (await call(pair)).text.split()
        dropped = await call(url)
        assert dropped.text.split() == words[:-1]
        assert dropped.finish_reason == "stop" and dropped.is_done
        assert (await call(url, stream=False)).text.split() == words

    async def test_duplicated_chunk(self, pair: str, start_proxy: StartProxy) -> None:
        words = (await chat(pair)).text.split()
        twice = (await chat(await start_proxy(pair, ["duplicated_chunk"]))).text.split()
        assert twice == [*words[:2], *words[1:]]

    async def test_missing_done(self, pair: str, start_proxy: StartProxy) -> None:
        reply = await chat(await start_proxy(pair, ["missing_done"]))
        assert reply.is_complete and not reply.is_done and reply.finish_reason == "stop"

    async def test_wrong_finish_reason(self, pair: str, start_proxy: StartProxy) -> None:
        url = await start_proxy(pair, ["wrong_finish_reason"])
        assert (await chat(url)).finish_reason == "length"
        assert (await chat(url, max_tokens=2, stream=False)).finish_reason == "stop"

    async def test_stream_text_differs(self, pair: str, start_proxy: StartProxy) -> None:
        url = await start_proxy(pair, ["stream_text_differs"])
        streamed, whole = await chat(url), await chat(url, stream=False)
        assert streamed.text == whole.text[1:]

    async def test_wrong_error(self, pair: str, start_proxy: StartProxy) -> None:
        reply = await chat(await start_proxy(pair, ["wrong_error"]), messages=[])
        assert reply.status == 500
        assert list(reply.json) == ["detail"]

    async def test_wrong_model_name(self, pair: str, start_proxy: StartProxy) -> None:
        url = await start_proxy(pair, ["wrong_model_name"])
        assert {event["model"] for event in (await chat(url)).events} == {"another-model"}
        assert (await chat(url, stream=False)).json["model"] == "another-model"

    async def test_missing_content_type(self, pair: str, start_proxy: StartProxy) -> None:
        url = await start_proxy(pair, ["missing_content_type"])
        for asked in ({}, {"stream": False}):
            reply = await chat(url, **asked)
            assert reply.status == 200
            assert "content-type" not in reply.headers

    async def test_several_faults_at_once(self, pair: str, start_proxy: StartProxy) -> None:
        url = await start_proxy(pair, ["missing_done", "wrong_model_name", "duplicated_chunk"])
        reply = await chat(url)
        assert len(reply.text.split()) == 7
        assert not reply.is_done
        assert reply.events[0]["model"] == "another-model"


def _without_ids(reply: Reply) -> list[Any]:
    """Events or the body, without what differs from request to request."""
    found = reply.events or [reply.json]
    return [{k: v for k, v in one.items() if k not in ("id", "created")} for one in found]


async def _until_metric(url: str, line: str) -> None:
    for _ in range(200):
        if line in (await ask(url, "GET", "/metrics")).body.decode().splitlines():
            return
    raise AssertionError(f"{line} never came")
