"""What hostile clients cost the others, and the door's memory.

    python benchmarks/gateway/abuse.py [--seconds 8] [--only NAME] [--json FILE]

Well-behaved clients stream short completions in a closed loop over kept connections, before, while
and after somebody misbehaves. Compared are the 99th percentiles of their latency, from sending the
request to `[DONE]`; what the machine does besides shows in the difference between before and
after. The door runs in a process of its own, pinned to one core, with its usual limits except for
the number of connections; the attackers run in another process. Behind the door an engine gives
every stream a token every 10 ms.

Not measured: attackers with more bandwidth than a loopback socket gives one process.
"""

import argparse
import asyncio
import contextlib
import json
import os
import resource
import statistics
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

import uvloop
from door_process import TickingEngine, WordText

from steelyard.gateway.app import build_gateway, serve
from steelyard.gateway.config import GatewayConfig, HttpLimits
from steelyard.gateway.models import ServedModel

STEP_S = 0.01
VICTIMS = 16
TOKENS = 8
MAX_CONNECTIONS = 12_000


def chat(tokens: int) -> bytes:
    """A streamed request."""
    message = {"role": "user", "content": "Describe a balance with unequal arms, please."}
    fields = {"model": "bench", "messages": [message], "max_tokens": tokens, "stream": True}
    body = json.dumps(fields).encode()
    head = (
        "POST /v1/chat/completions HTTP/1.1\r\nHost: bench\r\nContent-Type: application/json\r\n"
        f"Content-Length: {len(body)}\r\n\r\n"
    )
    return head.encode() + body


# Attackers: each is one connection, and comes back when it is thrown out.

Attack = Callable[[int], Awaitable[None]]


async def slow_header(port: int) -> None:
    """One byte of a header per second."""
    _, writer = await asyncio.open_connection("127.0.0.1", port)
    with contextlib.closing(writer):
        for byte in b"POST /v1/chat/completions HTTP/1.1\r\nHost: " + b"x" * 1000:
            writer.write(bytes((byte,)))
            await asyncio.sleep(1)
            if writer.is_closing():
                return


async def slow_body(port: int) -> None:
    """A body of 1 MB, ten bytes per second."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    with contextlib.closing(writer):
        writer.write(
            b"POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"
            b"Content-Length: 1000000\r\n\r\n"
        )
        while not (writer.is_closing() or reader.at_eof()):
            writer.write(b'{"messages')
            await asyncio.sleep(1)


async def huge_header(port: int) -> None:
    """A header of 64 MiB, as fast as it is taken."""
    _, writer = await asyncio.open_connection("127.0.0.1", port)
    with contextlib.closing(writer):
        writer.write(b"GET / HTTP/1.1\r\nHost: x\r\nX-Filler: ")
        for _ in range(1024):
            writer.write(b"x" * 65_536)
            await writer.drain()


async def idle(port: int) -> None:
    """One small request, then silence."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    with contextlib.closing(writer):
        writer.write(b"GET /health HTTP/1.1\r\nHost: x\r\n\r\n")
        await reader.read(1024)
        await reader.read(1)


async def slow_reader(port: int) -> None:
    """A long stream that nobody reads."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port, limit=1024)
    with contextlib.closing(writer):
        writer.transport.pause_reading()  # type: ignore[attr-defined]
        writer.write(chat(8000))
        await asyncio.sleep(3600)
        await reader.read(1)


ATTACKS: dict[str, tuple[Attack, int]] = {
    "1 byte/s header": (slow_header, 1000),
    "slow body": (slow_body, 1000),
    "64 MiB header": (huge_header, 4),
    "idle connections": (idle, 10_000),
    "slow reader": (slow_reader, 64),
}
"""What is done, and by how many at once."""


async def attack(name: str, port: int) -> None:
    """Misbehave until killed; prints a line once all have begun."""
    work, count = ATTACKS[name]

    async def again() -> None:
        while True:
            with contextlib.suppress(OSError):
                await work(port)
            # Whoever is refused at once would otherwise measure how fast one can connect.
            await asyncio.sleep(0.2)

    tasks = []
    for number in range(count):
        tasks.append(asyncio.create_task(again()))
        if number % 50 == 49:
            await asyncio.sleep(0.02)
    await asyncio.sleep(1)
    print("ready", flush=True)
    await asyncio.gather(*tasks)


async def door() -> None:
    """The process under attack."""
    engine = TickingEngine(STEP_S)
    engine.start()
    http = HttpLimits(max_connections=MAX_CONNECTIONS)
    config = GatewayConfig(port=0, max_in_flight=1024, shutdown_grace_s=0.0, http=http)
    gateway = build_gateway(config, [ServedModel("bench", engine, WordText(), 0)])
    await serve(gateway, lambda host, port: print(port, flush=True))


# Well-behaved clients.


async def victim(port: int, until_s: float, latencies: list[float]) -> None:
    """Ask again and again; a failure raises."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    request = chat(TOKENS)
    with contextlib.closing(writer):
        while (began_s := time.perf_counter()) < until_s:
            writer.write(request)
            await reader.readuntil(b"[DONE]\n\n\r\n0\r\n\r\n")
            latencies.append(time.perf_counter() - began_s)


async def measure(port: int, seconds: float) -> list[float]:
    """Latencies of all, the first second left out."""
    for warm in (True, False):
        latencies: list[float] = []
        until_s = time.perf_counter() + (1.0 if warm else seconds)
        await asyncio.gather(*(victim(port, until_s, latencies) for _ in range(VICTIMS)))
    return latencies


@dataclass(frozen=True)
class Row:
    """One attack, judged."""

    name: str
    attackers: int
    requests: int
    before_p99_ms: float
    during_p99_ms: float
    after_p99_ms: float
    ratio: float
    """During, over the mean of before and after."""
    before_mib: float
    peak_mib: float


def run_case(name: str, seconds: float) -> Row:
    """One attack on a fresh door."""
    with started("--door") as process:
        port = int(process.stdout.readline())  # type: ignore[union-attr]
        before = uvloop.run(measure(port, seconds))
        memory_mib = memory(process.pid, "VmRSS")
        with started("--attack", name, "--port", str(port)) as attackers:
            attackers.stdout.readline()  # type: ignore[union-attr]
            during = uvloop.run(measure(port, seconds))
        peak_mib = memory(process.pid, "VmHWM")
        time.sleep(1)
        after = uvloop.run(measure(port, seconds))
    usual = statistics.mean((p99_ms(before), p99_ms(after)))
    return Row(
        name,
        ATTACKS[name][1],
        len(during),
        p99_ms(before),
        p99_ms(during),
        p99_ms(after),
        p99_ms(during) / usual,
        memory_mib,
        peak_mib,
    )


@contextlib.contextmanager
def started(*arguments: str) -> "Iterator[subprocess.Popen[bytes]]":
    """This file as another process, killed at the end."""
    process = subprocess.Popen([sys.executable, __file__, *arguments], stdout=subprocess.PIPE)
    try:
        yield process
    finally:
        process.kill()
        process.wait()


def memory(pid: int, name: str) -> float:
    """MiB, from the kernel's account of a process."""
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith(f"{name}:"):
            return int(line.split()[1]) / 1024
    raise LookupError(name)


def p99_ms(latencies: list[float]) -> float:
    return statistics.quantiles(latencies, n=100)[98] * 1e3


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=8.0)
    parser.add_argument("--only", choices=list(ATTACKS))
    parser.add_argument("--json", type=Path)
    parser.add_argument("--door", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--attack", choices=list(ATTACKS), help=argparse.SUPPRESS)
    parser.add_argument("--port", type=int, help=argparse.SUPPRESS)
    options = parser.parse_args()
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    cores = sorted(os.sched_getaffinity(0))
    os.sched_setaffinity(0, {cores[0]} if options.door else set(cores[1:]) or set(cores))
    if options.door:
        uvloop.run(door())
    elif options.attack:
        uvloop.run(attack(options.attack, options.port))
    else:
        report([options.only] if options.only else list(ATTACKS), options.seconds, options.json)


def report(names: list[str], seconds: float, file: Path | None) -> None:
    """Run and print, as a table of Markdown."""
    print("| attack | attackers | requests | before p99 ms | during | after | ratio | MiB | peak |")
    print("|---|---|---|---|---|---|---|---|---|")
    rows = []
    for name in names:
        row = run_case(name, seconds)
        rows.append(row)
        print(
            f"| {row.name} | {row.attackers} | {row.requests} | {row.before_p99_ms:.1f} "
            f"| {row.during_p99_ms:.1f} | {row.after_p99_ms:.1f} | {row.ratio:.2f} "
            f"| {row.before_mib:.0f} | {row.peak_mib:.0f} |",
            flush=True,
        )
    if file is not None:
        file.write_text(json.dumps([asdict(row) for row in rows], indent=2) + "\n")


if __name__ == "__main__":
    main()
