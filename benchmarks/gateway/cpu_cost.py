"""What a request and a streamed event cost the door, in CPU time of its process.

    python benchmarks/gateway/cpu_cost.py [--seconds 4] [--rounds 3] [--profile]

The door runs in a process of its own, pinned to one core; the client (plain asyncio protocol that
only counts) on another. CPU time comes from the kernel's scheduler statistics, so a busy machine
disturbs rates but hardly costs. Behind the door stands an engine that steps like a real one: one
timer tick gives every running stream its next token. Its own share is measured without the door
and printed; the figures for the door include it.

It does not measure the tokenizer (a byte-level one stands in) nor an engine.
"""

import argparse
import asyncio
import json
import os
import statistics
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

import uvloop
from door_process import TickingEngine

from steelyard.contract import GenerateRequest, SamplingParams

HERE = Path(__file__).parent
CHAT = "/v1/chat/completions"


@dataclass(frozen=True)
class Case:
    """One kind of traffic."""

    name: str
    connections: int
    tokens: int
    is_streaming: bool
    step_s: float
    """Between tokens of a stream; 0 gives all tokens at once."""

    @property
    def request(self) -> bytes:
        text = "Describe a balance with unequal arms, please. " * 4
        body = json.dumps(
            {
                "model": "bench",
                "messages": [{"role": "user", "content": text}],
                "max_tokens": self.tokens,
                "temperature": 0.7,
                "stream": self.is_streaming,
            }
        ).encode()
        head = (
            f"POST {CHAT} HTTP/1.1\r\nHost: bench\r\nContent-Type: application/json\r\n"
            f"User-Agent: cpu-cost\r\nAccept: */*\r\nContent-Length: {len(body)}\r\n\r\n"
        )
        return head.encode() + body


CASES = (
    Case("complete answer", 1, 1, False, 0.0),
    Case("complete answer", 32, 1, False, 0.0),
    Case("complete answer", 256, 1, False, 0.0),
    Case("burst of 64 events", 32, 64, True, 0.0),
    Case("events every 20 ms", 32, 64, True, 0.02),
    Case("events every 50 ms", 256, 64, True, 0.05),
)


class Client(asyncio.Protocol):
    """Sends the same request again and again; counts answers and events."""

    def __init__(self, case: Case) -> None:
        self._case = case
        self._request = case.request
        self._end = b"\r\n0\r\n\r\n" if case.is_streaming else b"}"
        self._tail = b""
        self._transport: asyncio.Transport | None = None
        self.answers = 0
        self.events = 0
        self.lost = 0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport  # type: ignore[assignment]
        self._send()

    def data_received(self, data: bytes) -> None:
        self.events += data.count(b'"delta"')
        self._tail = (self._tail + data)[-16:]
        if self._tail.endswith(self._end):
            self.answers += 1
            self._tail = b""
            self._send()

    def connection_lost(self, exc: Exception | None) -> None:
        self.lost += 1

    def _send(self) -> None:
        assert self._transport is not None
        self._transport.write(self._request)


@dataclass(frozen=True)
class Result:
    """One measurement of one case."""

    cpu_s: float
    wall_s: float
    answers: int
    events: int


async def load(case: Case, port: int, pid: int, seconds: float) -> Result:
    """Drive the door for `seconds`, after half a second of warm-up."""
    loop = asyncio.get_running_loop()
    clients = []
    for _ in range(case.connections):
        _, client = await loop.create_connection(lambda: Client(case), "127.0.0.1", port)
        clients.append(client)
    await asyncio.sleep(0.5)
    before = (cpu_s(pid), time.monotonic(), *totals(clients))
    await asyncio.sleep(seconds)
    after = (cpu_s(pid), time.monotonic(), *totals(clients))
    assert not any(client.lost for client in clients), "the door closed a connection"
    for client in clients:
        client._transport.abort()
    return Result(*(b - a for a, b in zip(before, after, strict=True)))


def totals(clients: list[Client]) -> tuple[int, int]:
    return sum(c.answers for c in clients), sum(c.events for c in clients)


def cpu_s(pid: int) -> float:
    """CPU time of all threads of a process, to the nanosecond (Linux)."""
    tasks = Path(f"/proc/{pid}/task").iterdir()
    return sum(int((task / "schedstat").read_text().split()[0]) for task in tasks) / 1e9


def start_door(case: Case, profile: str | None) -> tuple[subprocess.Popen[str], int]:
    """A door process; its port."""
    command = [sys.executable, str(HERE / "door_process.py"), str(case.step_s), profile or ""]
    door = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    assert door.stdout is not None
    return door, int(door.stdout.readline())


def measure(case: Case, seconds: float, profile: str | None = None) -> Result:
    """One fresh door, one measurement."""
    door, port = start_door(case, profile)
    try:
        return uvloop.run(load(case, port, door.pid, seconds))
    finally:
        door.terminate()
        door.wait(30)


async def engine_alone(case: Case, seconds: float) -> float:
    """CPU µs per token of the ticking engine and a loop that throws its chunks away."""
    engine = TickingEngine(case.step_s)
    engine.start()
    count = 0

    async def consume() -> None:
        nonlocal count
        sampling = SamplingParams(max_tokens=case.tokens)
        request = GenerateRequest(request_id="x", prompt_ids=(1,), sampling=sampling)
        while True:
            async for _ in engine.generate(request):
                count += 1

    tasks = [asyncio.ensure_future(consume()) for _ in range(case.connections)]
    await asyncio.sleep(0.2)
    count, start_s = 0, time.process_time()
    await asyncio.sleep(seconds)
    per_token = (time.process_time() - start_s) / count * 1e6
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    return per_token


def report(case: Case, results: list[Result]) -> str:
    """One row: medians over the rounds."""
    rate = statistics.median(r.answers / r.wall_s for r in results)
    row = f"| {case.name} | {case.connections} "
    if not case.is_streaming:
        per_answer = statistics.median(r.cpu_s / r.answers * 1e6 for r in results)
        return row + f"| {per_answer:.0f} | {rate:.0f} | | | |"
    per_event = statistics.median(r.cpu_s / r.events * 1e6 for r in results)
    events = statistics.median(r.events / r.wall_s for r in results)
    alone = uvloop.run(engine_alone(case, 1.0))
    return row + f"| | {rate:.0f} | {per_event:.1f} | {alone:.1f} | {events:.0f} |"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seconds", type=float, default=4.0)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--case", type=int, help="only the case with this number, from 0")
    parser.add_argument("--profile", help="write the door's cProfile statistics to this file")
    options = parser.parse_args()
    cores = sorted(os.sched_getaffinity(0))
    os.sched_setaffinity(0, {cores[-1]})  # the door takes the first one
    chosen = CASES if options.case is None else CASES[options.case : options.case + 1]
    results: dict[Case, list[Result]] = {case: [] for case in chosen}
    for _ in range(options.rounds):  # interleaved, so that drift of the machine hits all alike
        for case in chosen:
            results[case].append(measure(case, options.seconds, options.profile))
    print(f"python {sys.version.split()[0]}, {os.cpu_count()} CPUs, {options.rounds} rounds")
    print(
        "| traffic | connections | CPU µs/answer | answers/s "
        "| CPU µs/event | of it the engine | events/s |"
    )
    print("|---|---|---|---|---|---|---|")
    for case, found in results.items():
        print(report(case, found))


if __name__ == "__main__":
    main()
