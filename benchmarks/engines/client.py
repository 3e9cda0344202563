"""The load: a process of its own that streams completions over bare sockets.

    python -m benchmarks.engines.client        jobs on standard input, reports on standard output

One asyncio protocol per connection, on uvloop where it exists. While requests run, an event costs
a stamp, a search for its end and an append; JSON is read afterwards. Which load to make is decided
elsewhere (`scenarios`).
"""

import asyncio
import contextlib
import gc
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import cast

import msgspec
from benchmarks.engines.answers import read_answer
from benchmarks.engines.jobs import Ask, ClientReport, Job, Stream, Worker
from benchmarks.engines.sse import MalformedAnswer, StreamedAnswer, StreamReader

__all__ = ["main"]

_HOST = "127.0.0.1"


def main() -> None:
    """Serve jobs until standard input ends."""
    runner = _new_runner()
    with runner:
        for line in sys.stdin.buffer:
            job = msgspec.json.decode(line, type=Job)
            report = runner.run(_run(job))
            sys.stdout.buffer.write(msgspec.json.encode(report) + b"\n")
            sys.stdout.buffer.flush()


def _new_runner() -> asyncio.Runner:
    try:
        import uvloop
    except ImportError:
        return asyncio.Runner()
    return asyncio.Runner(loop_factory=uvloop.new_event_loop)


class _Gauge:
    """Events received so far by all workers, and who waits for how many."""

    def __init__(self) -> None:
        self._events = 0
        self._waiting: list[tuple[int, asyncio.Event]] = []

    def add(self, events: int) -> None:
        self._events += events
        for wanted, reached in self._waiting:
            if self._events >= wanted:
                reached.set()

    async def wait(self, events: int) -> None:
        if self._events < events:
            reached = asyncio.Event()
            self._waiting.append((events, reached))
            await reached.wait()


class _Connection(asyncio.Protocol):
    """Sends one request at a time over a connection that is kept, and reopened when it is gone."""

    def __init__(self, port: int, gauge: _Gauge) -> None:
        self._port = port
        self._gauge = gauge
        self._transport: asyncio.Transport | None = None
        """None while there is no connection."""
        self._reader = StreamReader()
        self._waiter: asyncio.Future[StreamedAnswer] | None = None
        self._has_bytes = False
        """True once something of the current answer has come."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)  # uvloop's own class

    def data_received(self, data: bytes) -> None:
        now_ns = time.monotonic_ns()
        self._has_bytes = True
        try:
            answer = self._reader.feed(data, now_ns)
        except MalformedAnswer as error:
            self._fail(error)
            return
        # One read is nearly always one event; the gauge need not be more exact than that.
        self._gauge.add(1)
        if answer is not None and self._waiter is not None:
            self._waiter.set_result(answer)
            self._waiter = None

    def connection_lost(self, exc: Exception | None) -> None:
        self._transport = None
        self._fail(exc or ConnectionError("the server closed the connection"))

    async def open(self) -> None:
        """Connect unless that is done."""
        if self._transport is None:
            self._reader = StreamReader()
            loop = asyncio.get_running_loop()
            await loop.create_connection(lambda: self, _HOST, self._port)

    async def request(self, head_and_body: bytes) -> tuple[int, StreamedAnswer]:
        """When it was sent, and the answer.

        Some servers close a connection after each answer without announcing it. A request that
        meets such an end is sent again, as HTTP allows, and counts from then.
        """
        try:
            return await self._attempt(head_and_body)
        except ConnectionError:
            if self._has_bytes:
                raise
            return await self._attempt(head_and_body)

    async def _attempt(self, head_and_body: bytes) -> tuple[int, StreamedAnswer]:
        await self.open()
        assert self._transport is not None and self._waiter is None
        waiter = self._waiter = asyncio.get_running_loop().create_future()
        self._has_bytes = False
        sent_ns = time.monotonic_ns()
        self._transport.write(head_and_body)
        return sent_ns, await waiter

    def close(self) -> None:
        if self._transport is not None:
            self._transport.close()

    def _fail(self, error: Exception) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_exception(error)
        self._waiter = None


async def _run(job: Job) -> ClientReport:
    """Encode, connect, run all workers, decode."""
    gauge = _Gauge()
    connections = [_Connection(job.port, gauge) for _ in job.workers]
    for connection in connections:
        await connection.open()
    requests = [[encode_request(job, ask) for ask in worker.asks] for worker in job.workers]
    with _no_collections():
        cpu_s, started = time.process_time(), time.monotonic()
        waited_s, wakeups = _run_delay()
        outcomes = await asyncio.gather(
            *(
                _work(number, worker, requests[number], connection, gauge, job.timeout_s)
                for number, (worker, connection) in enumerate(
                    zip(job.workers, connections, strict=True)
                )
            )
        )
        report = ClientReport(
            streams=[],
            cpu_s=time.process_time() - cpu_s,
            elapsed_s=time.monotonic() - started,
            wait_s=_run_delay()[0] - waited_s,
            wakeups=_run_delay()[1] - wakeups,
        )
    for connection in connections:
        connection.close()
    report.streams = [_read(outcome) for worker in outcomes for outcome in worker]
    return report


_Outcome = tuple[int, int, Ask, StreamedAnswer | Exception]
"""Worker, when it was sent (0: never), what was asked, what came."""


async def _work(
    number: int,
    worker: Worker,
    requests: list[bytes],
    connection: _Connection,
    gauge: _Gauge,
    timeout_s: float,
) -> list[_Outcome]:
    await asyncio.wait_for(gauge.wait(worker.start_after_events), timeout_s)
    outcomes: list[_Outcome] = []
    for ask, request in zip(worker.asks, requests, strict=True):
        try:
            sent_ns, answer = await asyncio.wait_for(connection.request(request), timeout_s)
        except (OSError, TimeoutError, MalformedAnswer) as error:
            outcomes.append((number, 0, ask, error))
            break
        outcomes.append((number, sent_ns, ask, answer))
    return outcomes


def _read(outcome: _Outcome) -> Stream:
    number, sent_ns, ask, answer = outcome
    if isinstance(answer, Exception):
        return Stream(worker=number, sent_ns=0, error=f"{type(answer).__name__}: {answer}")
    return read_answer(answer, number, sent_ns, ask.max_tokens)


def encode_request(job: Job, ask: Ask) -> bytes:
    """Head and body; the same members for every server, plus what this one wants."""
    body = msgspec.json.encode(
        {
            "model": job.model,
            "prompt": ask.prompt_ids,
            "max_tokens": ask.max_tokens,
            "temperature": 0,
            "ignore_eos": True,
            "stream": True,
            "stream_options": {"include_usage": True},
            **job.extra,
        }
    )
    head = (
        f"POST /v1/completions HTTP/1.1\r\nHost: {_HOST}:{job.port}\r\n"
        f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
    )
    return head.encode() + body


@contextlib.contextmanager
def _no_collections() -> Iterator[None]:
    """A collection of garbage would stop all stamps for milliseconds."""
    gc.collect()
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


def _run_delay() -> tuple[float, int]:
    """Seconds this process waited for a processor, and how often it got one; zeros off Linux."""
    try:
        _, waited_ns, times = Path("/proc/self/schedstat").read_text().split()
    except OSError:
        return 0.0, 0
    return int(waited_ns) / 1e9, int(times)


if __name__ == "__main__":
    main()
