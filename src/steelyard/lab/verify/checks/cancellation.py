"""Checks that a client who leaves frees what it held. Seen through the server's own gauge."""

import asyncio
import contextlib
from collections.abc import Callable

from steelyard.lab.verify.check import check
from steelyard.lab.verify.exchange import HttpRequest
from steelyard.lab.verify.http_client import OpenExchange
from steelyard.lab.verify.material import STORIES
from steelyard.lab.verify.metrics import read_metrics
from steelyard.lab.verify.probe import Probe

__all__ = ["CHECKS"]

_POLL_S = 0.05
_START_S = 5.0
"""How long a request may take to show up in the gauge."""
_FREE_S = 3.0
"""How long after its client left a request may still run."""


@check(
    "cancellation.streamed",
    "Closing a stream ends its generation.",
    "Watch for the client's closing while streaming, and abort in the engine.",
)
async def _streamed(probe: Probe) -> None:
    await _cancel(probe, is_streamed=True)


@check(
    "cancellation.whole",
    "Closing the connection of a request that is not streamed ends its generation.",
    "Nothing is written before the end, so the closing must be watched for.",
)
async def _whole(probe: Probe) -> None:
    await _cancel(probe, is_streamed=False)


async def _cancel(probe: Probe, is_streamed: bool) -> None:
    if probe.offer.running_gauge is None:
        probe.skip("no gauge of running requests is known in /metrics")
    idle = await _running(probe)
    tokens = min(2000, (probe.offer.context_tokens or 2048) - 64)
    wishes = {"stream": True} if is_streamed else {}
    if await _takes_ignore_eos(probe):
        wishes["ignore_eos"] = True
    connection = await probe.connect()
    async with contextlib.aclosing(connection):
        request = probe.request(probe.main, STORIES[0], max_tokens=tokens, **wishes)
        opened = await connection.begin(request)
        reading = asyncio.create_task(_read(opened))
        try:
            seen = await _wait_for(probe, lambda n: n > idle or reading.done(), _START_S)
            is_seen = seen and not reading.done()
        finally:
            reading.cancel()
    if not is_seen:
        probe.skip("the request was over before the gauge showed it")
    is_free = await _wait_for(probe, lambda n: n <= idle, _FREE_S)
    problem = f"{_FREE_S:g} s after the client left, its request still runs"
    probe.claim(is_free, problem, opened.exchange(), *([probe.last] if probe.last else []))


async def _read(opened: OpenExchange) -> None:
    async for _ in opened.pieces():
        pass


async def _takes_ignore_eos(probe: Probe) -> bool:
    return (await probe.post(probe.main, "Hi", max_tokens=1, ignore_eos=True)).is_ok


async def _wait_for(probe: Probe, holds: Callable[[float], bool], limit_s: float) -> bool:
    for _ in range(int(limit_s / _POLL_S)):
        if holds(await _running(probe)):
            return True
        await asyncio.sleep(_POLL_S)
    return False


async def _running(probe: Probe) -> float:
    exchange = await probe.send(HttpRequest("GET", "/metrics"))
    values = read_metrics(exchange.body.decode("utf-8", "replace")).values
    assert probe.offer.running_gauge is not None
    return values.get(probe.offer.running_gauge, 0.0)


CHECKS = (_streamed, _whole)
