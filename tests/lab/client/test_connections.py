"""Requests on real sockets: reuse, failures of every kind, time stamps."""

import asyncio
import socket
import time

import pytest

from steelyard.lab.client.exchange import Exchange
from steelyard.lab.client.pool import ConnectionPool
from steelyard.lab.client.target import RequestWriter, Target, resolve
from steelyard.lab.outcomes import Outcome, RequestFlag

from ..scripted_server import END, HEAD, Script, answer, event, scripted, token


async def test_a_free_connection_is_used_again() -> None:
    async def script(asked, writer) -> None:
        writer.write(answer("a"))

    exchanges, server = await _ask(script, times=3)
    assert [exchange.outcome for exchange in exchanges] == [Outcome.COMPLETE] * 3
    assert server.connections == 1
    flags = [bool(exchange.flags & RequestFlag.NEW_CONNECTION) for exchange in exchanges]
    assert flags == [True, False, False]


async def test_requests_at_the_same_time_never_wait_for_each_other() -> None:
    everybody = asyncio.Barrier(50)

    async def script(asked, writer) -> None:
        await everybody.wait()
        writer.write(answer("a"))

    async with scripted(script) as server, asyncio.timeout(10):
        pool = _pool(server.url)
        exchanges = [_exchange() for _ in range(50)]
        await asyncio.gather(*(_send(pool, server.url, exchange) for exchange in exchanges))
    assert all(exchange.is_complete for exchange in exchanges)
    assert (pool.counts.opened, pool.counts.busy_peak, pool.counts.busy) == (50, 50, 0)
    pool.close()


async def test_a_connection_that_the_server_closed_is_not_used_again() -> None:
    async def script(asked, writer) -> None:
        writer.write(answer("a"))
        await writer.drain()
        writer.close()

    exchanges, server = await _ask(script, times=3, pause_s=0.05)
    assert [exchange.outcome for exchange in exchanges] == [Outcome.COMPLETE] * 3
    assert server.connections == 3


async def test_tokens_are_stamped_when_they_arrive() -> None:
    sent_s: list[float] = []

    async def script(asked, writer) -> None:
        writer.write(HEAD)
        for text in "abc":
            await asyncio.sleep(0.05)
            sent_s.append(time.monotonic())
            writer.write(token(text))
        writer.write(token("", "stop") + event("[DONE]") + END)

    (exchange,), _ = await _ask(script)
    late_s = [read - sent for read, sent in zip(exchange.times, sent_s, strict=True)]
    assert all(0 <= late < 0.02 for late in late_s)
    assert exchange.sent_s < exchange.first_byte_s < exchange.times[0] < exchange.end_s


def _error(status: int, body: bytes, more: bytes = b"") -> bytes:
    return b"HTTP/1.1 %d No\r\ncontent-length: %d\r\n%b\r\n%b" % (status, len(body), more, body)


@pytest.mark.parametrize(
    ("wire", "outcome", "message"),
    [
        (_error(429, b'{"error":{"message":"full"}}'), Outcome.SHED, "429: full"),
        (_error(503, b"busy", b"retry-after: 2\r\n"), Outcome.SHED, "503: busy"),
        (_error(503, b""), Outcome.SERVER_ERROR, "503: "),
        (_error(500, b'{"detail":"oops"}'), Outcome.SERVER_ERROR, '500: {"detail":"oops"}'),
        (_error(400, b'{"error":"bad prompt"}'), Outcome.REFUSED, "400: bad prompt"),
        (_error(404, b"\xff\xfe"), Outcome.REFUSED, "404: ��"),
        (b"SSH-2.0\r\n\r\n", Outcome.MALFORMED, "'SSH-2.0' is no HTTP/1.1 response"),
        (HEAD + event("{]"), Outcome.MALFORMED, ""),
        (HEAD + event({"error": {"message": "boom"}}), Outcome.STREAM_ERROR, "boom"),
        (HEAD + token("a") + END, Outcome.TRUNCATED, ""),
        (HEAD + event("[DONE]") + END, Outcome.EMPTY, ""),
    ],
)
async def test_every_kind_of_failure_has_its_name(wire, outcome: Outcome, message: str) -> None:
    async def script(asked, writer) -> None:
        writer.write(wire)

    (exchange,), _ = await _ask(script)
    assert exchange.outcome is outcome
    assert message in exchange.message


async def test_retry_after_is_kept() -> None:
    async def script(asked, writer) -> None:
        writer.write(_error(429, b"", b"Retry-After: 7\r\n"))

    (exchange,), _ = await _ask(script)
    assert exchange.retry_after_s == 7


@pytest.mark.parametrize("sent", [b"", HEAD[:20], HEAD, HEAD + token("a")])
async def test_a_connection_that_breaks_is_a_reset(sent: bytes) -> None:
    async def script(asked, writer) -> None:
        writer.write(sent)
        await writer.drain()
        writer.transport.abort()

    (exchange,), _ = await _ask(script)
    assert exchange.outcome is Outcome.RESET
    assert exchange.end_s >= exchange.sent_s


async def test_a_failed_answer_does_not_spoil_the_next_one() -> None:
    async def script(asked, writer) -> None:
        bad = HEAD + token("a") + event({"error": "boom"})
        writer.write(answer("a") if asked.number % 2 else bad)

    exchanges, server = await _ask(script, times=4)
    assert [exchange.is_complete for exchange in exchanges] == [False, True, False, True]
    assert server.connections == 3, "a connection with half an answer on it is closed"


async def test_nobody_listening_is_a_failure_to_connect() -> None:
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{unused.getsockname()[1]}"
        exchange = _exchange()
        await _send(_pool(url), url, exchange)
    assert exchange.outcome is Outcome.CONNECT_FAILED


async def test_an_answer_in_one_piece_is_no_stream() -> None:
    async def script(asked, writer) -> None:
        body = b'{"choices":[{"message":{"content":"Hi"},"finish_reason":"stop"}]}'
        head = b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n"
        writer.write(head % len(body) + body)

    (exchange,), _ = await _ask(script)
    assert exchange.is_complete
    assert exchange.flags & RequestFlag.NOT_STREAMED


async def test_requests_say_what_they_are() -> None:
    async def script(asked, writer) -> None:
        writer.write(answer("a"))

    _, server = await _ask(script)
    asked = server.asked[0]
    assert asked.headers["authorization"] == "Bearer secret"
    assert asked.headers["x-request-id"] == "test-1"
    assert asked.headers["host"] == server.url.removeprefix("http://")
    assert asked.body["messages"] == [{"role": "user", "content": "Hello"}]
    assert asked.body["stream_options"] == {"include_usage": True}
    assert (asked.body["max_tokens"], asked.body["top_k"]) == (5, 3)


def _target(url: str) -> Target:
    headers = {"Authorization": "Bearer secret"}
    return Target(url=url, model="m", headers=headers, body={"top_k": 3})


def _pool(url: str) -> ConnectionPool:
    return ConnectionPool(resolve(_target(url).address))


def _exchange() -> Exchange:
    exchange = Exchange(session=0, turn=0, scheduled_s=time.monotonic())
    exchange.dispatched_s = exchange.released_s = exchange.scheduled_s
    return exchange


async def _send(pool: ConnectionPool, url: str, exchange: Exchange) -> None:
    writer = RequestWriter(_target(url))
    body = writer.chat([{"role": "user", "content": "Hello"}], 5)
    await pool.send(exchange, writer.request(body, "test-1"))
    await exchange.done


async def _ask(script: Script, *, times: int = 1, pause_s: float = 0.01):
    async with scripted(script) as server, asyncio.timeout(10):
        pool = _pool(server.url)
        exchanges = []
        for _ in range(times):
            exchanges.append(_exchange())
            await _send(pool, server.url, exchanges[-1])
            await asyncio.sleep(pause_s)
        pool.close()
        await asyncio.sleep(0)
    return exchanges, server
