"""Checks of HTTP itself: connections, framing, request ids, health and metrics."""

import asyncio
import contextlib
import secrets
from dataclasses import replace

from steelyard.lab.verify.check import check
from steelyard.lab.verify.exchange import Exchange
from steelyard.lab.verify.material import COUNTING, HELLO, STORIES
from steelyard.lab.verify.metrics import PRODUCED_COUNTERS, read_metrics
from steelyard.lab.verify.probe import Probe

__all__ = ["CHECKS"]

_METRICS_DELAY_S = 3.0
"""How late a server may count."""


@check(
    "http.keep-alive",
    "A connection serves one request after the other, streams among them.",
    "A server that closes must say Connection: close.",
)
async def _keep_alive(probe: Probe) -> None:
    async with contextlib.aclosing(await probe.connect()) as connection:
        for at, stream in enumerate((None, True, None, True)):
            request = probe.request(probe.main, STORIES[at], max_tokens=3, stream=stream)
            exchange = await connection.send(request)
            problem = f"request {at + 1} on one connection: status {exchange.status}"
            faults = "; ".join(exchange.faults)
            if not probe.claim(exchange.is_ok and not faults, f"{problem} {faults}", exchange):
                return
            if exchange.head is not None and not exchange.head.keeps_alive:
                probe.skip(f"the server closes the connection after request {at + 1}")


@check(
    "http.pipelining",
    "Two requests sent at once on a connection are answered in order.",
    "RFC 9112, section 9.3.2: servers must answer in the order of the requests.",
)
async def _pipelining(probe: Probe) -> None:
    requests = [probe.request(probe.main, COUNTING, max_tokens=count) for count in (2, 5)]
    async with contextlib.aclosing(await probe.connect()) as connection:
        opened = await connection.begin_all(requests)
        exchanges = [await one.finish() for one in opened]
    first = exchanges[0]
    if first.head is not None and not first.head.keeps_alive:
        probe.skip("the server closes the connection after the first answer")
    for exchange in exchanges:
        faults = "; ".join(exchange.faults)
        problem = f"status {exchange.status} {faults}"
        if not probe.claim(exchange.is_ok and not faults, problem, exchange):
            return
    counts = [exchange.json()["usage"]["completion_tokens"] for exchange in exchanges]
    probe.claim(counts == [2, 5], f"answers of {counts} tokens came, not [2, 5]", *exchanges)


@check(
    "http.chunked-request",
    "A request may announce its body by Transfer-Encoding.",
    "Clients that do not know the length beforehand send chunks.",
)
async def _chunked_request(probe: Probe) -> None:
    request = replace(probe.request(probe.main, HELLO * 40, max_tokens=1), is_chunked=True)
    exchange = await probe.send(request)
    probe.claim(exchange.is_ok, f"a chunked request got status {exchange.status}", exchange)


@check(
    "http.slow-request",
    "A request may arrive in pieces.",
    "A packet is no request: read until the body is complete.",
)
async def _slow_request(probe: Probe) -> None:
    async with contextlib.aclosing(await probe.connect()) as connection:
        request = probe.request(probe.main, HELLO, max_tokens=1)
        exchange = await (await connection.begin(request, pause_s=0.05)).finish()
    probe.claim(exchange.is_ok, f"a request in two pieces got {exchange.status}", exchange)


@check(
    "http.request-id",
    "An x-request-id comes back; without one, each answer gets its own.",
    "It is what client and server find each other's logs by.",
)
async def _request_id(probe: Probe) -> None:
    own = [await probe.send(probe.request(probe.main, HELLO, max_tokens=1)) for _ in range(2)]
    ids = [exchange.header("x-request-id") for exchange in own]
    wanted = f"verify-{secrets.token_hex(8)}"
    request = probe.request(probe.main, HELLO, max_tokens=1)
    given = await probe.send(replace(request, fields=(("x-request-id", wanted),)))
    returned = given.header("x-request-id")
    if returned is None and None in ids:
        probe.skip("answers have no x-request-id")
    probe.claim(returned == wanted, f"{wanted} came back as {returned}", given)
    is_unique = None in ids or ids[0] != ids[1]
    probe.claim(is_unique, f"two answers have the id {ids[0]}", *own)


@check(
    "http.health",
    "/health answers 200.",
    "Orchestrators ask it every few seconds.",
)
async def _health(probe: Probe) -> None:
    exchange = await probe.get("/health")
    probe.claim(exchange.status == 200, f"status {exchange.status}", exchange)


@check(
    "http.metrics",
    "/metrics is text that Prometheus can read, and counts the tokens produced.",
    "Is a counter missed for one kind of request?",
)
async def _metrics(probe: Probe) -> None:
    before = await _produced(probe)
    whole = await probe.ask(probe.main, COUNTING, max_tokens=7)
    wishes = {"max_tokens": 6, "stream_options": {"include_usage": True}}
    streamed = await probe.stream(probe.main, COUNTING, **wishes)
    wanted = whole.counts.completion_tokens + streamed.counts.completion_tokens
    if before is None:
        probe.skip("no counter of produced tokens is known; the format was checked")
    counted = 0.0
    for _ in range(10):
        counted = (await _produced(probe) or 0.0) - before
        if counted >= wanted:
            break
        await asyncio.sleep(_METRICS_DELAY_S / 10)
    probe.claim(counted >= wanted, f"{counted:g} tokens were counted, {wanted} came", streamed)
    if counted > wanted:
        probe.note(f"{counted:g} tokens were counted, {wanted} came: others ask this server too")


async def _produced(probe: Probe) -> float | None:
    exchange = await probe.get("/metrics")
    metrics = read_metrics(_text(probe, exchange))
    probe.claim(not metrics.faults, "; ".join(metrics.faults[:3]), exchange)
    is_text = exchange.content_type in ("text/plain", "application/openmetrics-text")
    probe.claim(is_text, f"the content type is {exchange.content_type!r}", exchange)
    return next((metrics.values[n] for n in PRODUCED_COUNTERS if n in metrics.values), None)


def _text(probe: Probe, exchange: Exchange) -> str:
    if not exchange.is_ok:
        probe.skip(f"/metrics got status {exchange.status}")
    return exchange.body.decode("utf-8", "replace")


CHECKS = (
    _keep_alive,
    _pipelining,
    _chunked_request,
    _slow_request,
    _request_id,
    _health,
    _metrics,
)
