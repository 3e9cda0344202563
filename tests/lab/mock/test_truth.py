"""The truth file agrees with what a client saw, to the accuracy of the machine."""

import asyncio
import socket
import time
from itertools import pairwise
from pathlib import Path

import pytest

from steelyard.contract.errors import SettingsError
from steelyard.lab.mock import MockServer, make_config, read_truth

from .conftest import ReadTruth, StartMock
from .wire import ask, chat


async def test_a_request_is_described_completely(
    start_mock: StartMock, truth_of: ReadTruth
) -> None:
    server = await start_mock(client_tokens_per_token=2, reasoning_tokens=1, bundle_tokens=2)
    before_ns = time.monotonic_ns()
    await ask(
        server.url,
        "POST",
        "/v1/chat/completions",
        b'{"messages": [{"role": "user", "content": "a b c d"}], "stream": true}',
        "x-request-id: mine",
    )
    after_ns = time.monotonic_ns()
    run, (request,) = truth_of(server)
    assert run.config["client_tokens_per_token"] == "2.0"
    assert abs(run.monotonic_to_unix_ns + after_ns - time.time_ns()) < 10**9
    assert (request.index, request.request_id, request.endpoint) == (0, "mine", "chat")
    assert request.is_stream and request.outcome == "finished" and request.finish_reason == "stop"
    assert (request.prompt_tokens, request.output_tokens, request.client_tokens) == (2, 6, 12)
    assert request.reasoning_tokens == 1
    assert request.event_tokens == [2, 2, 2]
    moments = [
        before_ns,
        request.header_ns,
        request.arrived_ns,
        request.slot_ns or 0,
        request.head_ns or 0,
        request.ended_ns or 0,
        after_ns,
    ]
    assert moments == sorted(moments)
    assert len(request.scheduled_ns) == len(request.sent_ns) == 6
    assert all(s >= d for s, d in zip(request.sent_ns, request.scheduled_ns, strict=True))
    assert all(a <= b for a, b in pairwise(request.sent_ns))
    assert request.scheduled_ns[0] == 5_000_000
    assert request.ttft_ns == request.sent_ns[0]
    assert request.latency_ns == (request.ended_ns or 0) - request.arrived_ns


async def test_a_complete_answer_sends_all_tokens_at_its_end(
    start_mock: StartMock, truth_of: ReadTruth
) -> None:
    server = await start_mock()
    await chat(server.url, stream=False)
    _, (request,) = truth_of(server)
    assert len(set(request.scheduled_ns)) == 6
    assert len(set(request.sent_ns)) == 1
    assert request.event_tokens == [6]


async def test_a_client_that_does_not_read_is_blamed(
    start_mock: StartMock, truth_of: ReadTruth
) -> None:
    # More bytes than the kernel keeps for anyone.
    length: dict[str, object] = {"output_tokens": 80_000, "client_tokens_per_token": 16}
    server = await start_mock(**length, itl_ms=0, bundle_tokens=50, ttft_ms=0)
    host, port = server.address
    sock = socket.socket()
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    sock.setblocking(False)
    loop = asyncio.get_running_loop()
    await loop.sock_connect(sock, (host, port))
    body = b'{"prompt": "x", "stream": true}'
    head = b"POST /v1/completions HTTP/1.1\r\ncontent-length: %d\r\n\r\n" % len(body)
    await loop.sock_sendall(sock, head + body)
    while not (requests := truth_of(server)[1]):
        await asyncio.sleep(0.01)
    received = bytearray()
    while not received.endswith(b"0\r\n\r\n"):
        received += await loop.sock_recv(sock, 1 << 20)
    sock.close()
    (request,) = requests
    assert request.outcome == "finished"
    assert 0 < request.blocked_tokens < 80_000
    assert received.count(b"data: ") == 1600 + 2


async def test_refused_requests_are_in_it(start_mock: StartMock, truth_of: ReadTruth) -> None:
    server = await start_mock()
    await ask(server.url, "POST", "/v1/completions", b"{")
    _, (request,) = truth_of(server)
    assert (request.outcome, request.status, request.index) == ("refused", 400, -1)


async def test_it_is_readable_while_the_mock_runs(start_mock: StartMock) -> None:
    server = await start_mock(output_tokens=300)
    await chat(server.url)  # long enough for the mock to flush by itself
    await chat(server.url)
    assert server.config.truth is not None
    assert len(read_truth(Path(server.config.truth))[1]) >= 1


def test_another_file_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "truth.jsonl"
    for content in ("", "{}", '{"kind":"run","version":99,"config":{},"monotonic_to_unix_ns":0}'):
        file.write_text(content)
        with pytest.raises(SettingsError):
            read_truth(file)


async def test_a_file_that_cannot_be_written_is_an_error_at_start(tmp_path: Path) -> None:
    server = MockServer(make_config({"port": 0, "truth": str(tmp_path / "no" / "truth")}))
    with pytest.raises(SettingsError) as refused:
        await server.startup()
    assert refused.value.param == "truth"
