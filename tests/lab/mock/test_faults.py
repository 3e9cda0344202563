"""Each planted fault is what it says, and the truth file knows about it."""

import asyncio
import json
import time

import pytest

from .conftest import ReadTruth, StartMock
from .wire import ask, chat, completion


async def test_429_tells_when_to_come_back(start_mock: StartMock, truth_of: ReadTruth) -> None:
    server = await start_mock(fault_429=1, retry_after_s=2.5)
    reply = await chat(server.url)
    assert (reply.status, reply.headers["retry-after"]) == (429, "2.5")
    assert reply.json["error"]["type"] == "rate_limit_error"
    (request,) = truth_of(server)[1]
    assert (request.status, request.outcome, request.sent_ns) == (429, "429", [])


async def test_a_full_queue_is_429_too(start_mock: StartMock) -> None:
    server = await start_mock(slots=1, queue_limit=0, ttft_ms=200)
    replies = await asyncio.gather(*(chat(server.url) for _ in range(3)))
    assert sorted(reply.status for reply in replies) == [200, 429, 429]


async def test_500_is_an_error_object(start_mock: StartMock, truth_of: ReadTruth) -> None:
    server = await start_mock(fault_500=1)
    reply = await completion(server.url)
    assert (reply.status, reply.json["error"]["type"]) == (500, "server_error")
    assert truth_of(server)[1][0].outcome == "500"


@pytest.mark.parametrize("is_stream", [True, False])
async def test_a_reset_breaks_the_connection(
    start_mock: StartMock, truth_of: ReadTruth, is_stream: bool
) -> None:
    server = await start_mock(fault_reset=1, fault_tokens=2)
    with pytest.raises((ConnectionResetError, asyncio.IncompleteReadError)):
        await completion(server.url, stream=is_stream)
    (request,) = truth_of(server)[1]
    assert request.outcome == "reset"
    assert request.output_tokens == (2 if is_stream else 0)


async def test_a_truncated_stream_ends_without_a_word(
    start_mock: StartMock, truth_of: ReadTruth
) -> None:
    server = await start_mock(fault_truncate=1, fault_tokens=2)
    reply = await chat(server.url)
    assert reply.is_complete and not reply.is_done
    assert reply.finish_reason is None
    assert len(reply.text.split()) == 2
    (request,) = truth_of(server)[1]
    assert (request.outcome, request.finish_reason) == ("truncate", None)


async def test_a_truncated_complete_answer_is_shorter_than_promised(start_mock: StartMock) -> None:
    reply = await chat((await start_mock(fault_truncate=1)).url, stream=False)
    assert (reply.status, reply.is_complete) == (200, False)


async def test_a_stalled_stream_goes_on_later(start_mock: StartMock, truth_of: ReadTruth) -> None:
    server = await start_mock(fault_stall=1, stall_s=0.3, fault_tokens=2)
    begun_s = time.monotonic()
    reply = await chat(server.url)
    assert time.monotonic() - begun_s > 0.3
    assert reply.is_done and len(reply.text.split()) == 6
    (request,) = truth_of(server)[1]
    assert request.outcome == "stall"
    gaps = [b - a for a, b in zip(request.sent_ns, request.sent_ns[1:], strict=False)]
    assert [gap > 250_000_000 for gap in gaps] == [False, True, False, False, False]


async def test_malformed_json_is_one_event_or_the_body(start_mock: StartMock) -> None:
    url = (await start_mock(fault_malformed=1, fault_tokens=2)).url
    broken = []
    reply = await chat(url)
    for block in reply.blocks[:-1]:
        try:
            json.loads(block.removeprefix("data: "))
        except json.JSONDecodeError:
            broken.append(block)
    assert len(broken) == 1 and reply.is_done
    with pytest.raises(json.JSONDecodeError):
        _ = (await chat(url, stream=False)).json


async def test_wrong_usage_counts_one_too_many(start_mock: StartMock, truth_of: ReadTruth) -> None:
    server = await start_mock(fault_usage=1)
    reply = await chat(server.url, stream_options={"include_usage": True})
    assert reply.usage["completion_tokens"] == 7
    (request,) = truth_of(server)[1]
    assert request.output_tokens == 6
    assert request.reported is not None and request.reported.completion_tokens == 7


async def test_shares_are_kept_and_repeat_with_the_seed(
    start_mock: StartMock, truth_of: ReadTruth
) -> None:
    async def outcomes(seed: int) -> list[str]:
        server = await start_mock(fault_429=0.3, fault_500=0.2, seed=seed, ttft_ms=0, itl_ms=0)
        for _ in range(100):
            await ask(server.url, "POST", "/v1/completions", b'{"prompt": "x"}')
        return [request.outcome for request in truth_of(server)[1]]

    first, again, other = await outcomes(1), await outcomes(1), await outcomes(2)
    assert first == again != other
    assert 15 <= first.count("429") <= 45
    assert 8 <= first.count("500") <= 33
