"""What the engine loop, the wire and `EmbeddedEngine` cost per token, without a model.

    python benchmarks/wire/overhead.py [--seconds 4] [--streams 16 64] [--step-ms 0 5]

An engine process with the fake runner serves this process. Steps take `step-ms`, slept away; 0 lets
the engine run free. Both matter: running free shows the instructions, while between slept steps
the caches go cold and every wake-up is paid for, as between the steps of a real model.

"bare" is the same scheduler and fake runner called in a loop here, at the same pace, without a
process, a loop or a wire: "added" is what is paid over that. CPU time is that of all threads, user
and system.
"""

import argparse
import asyncio
import os
import platform
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

import msgspec
import psutil
import uvloop

from steelyard.backends.embedded import EmbeddedEngine
from steelyard.contract import GenerateRequest, SamplingParams
from steelyard.engine.config import EngineConfig
from steelyard.engine.fake_runner import FakeModel, FakeRunner
from steelyard.fleet.process import LocalLauncher, engine_command
from steelyard.fleet.replica import Replica
from steelyard.scheduling.config import SchedulerConfig
from steelyard.scheduling.scheduler import Scheduler

CONTEXT_TOKENS = 4096
TOKENS_PER_REQUEST = 512


@dataclass(frozen=True)
class Row:
    """CPU microseconds per token of one setting."""

    streams: int
    step_ms: float
    tokens_per_s: float
    bare_us: float
    engine_us: float
    client_us: float

    @property
    def added_us(self) -> float:
        return self.engine_us + self.client_us - self.bare_us


def main() -> None:
    arguments = _parse()
    print(f"{platform.processor() or platform.machine()}, {os.cpu_count()} CPUs,", end=" ")
    print(f"Python {platform.python_version()}, client on {arguments.loop}")
    print("streams  step ms  tokens/s   bare  engine  client   total   added   (CPU µs per token)")
    for step_ms in arguments.step_ms:
        for streams in arguments.streams:
            scenario = _measure(streams, step_ms, arguments.seconds)
            row = uvloop.run(scenario) if arguments.loop == "uvloop" else asyncio.run(scenario)
            print(
                f"{row.streams:7} {row.step_ms:8g} {row.tokens_per_s:9.0f} {row.bare_us:6.1f}"
                f" {row.engine_us:7.1f} {row.client_us:7.1f} {row.engine_us + row.client_us:7.1f}"
                f" {row.added_us:7.1f}"
            )


def _parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seconds", type=float, default=4.0, help="per setting")
    parser.add_argument("--streams", type=int, nargs="+", default=[16, 64])
    parser.add_argument("--step-ms", type=float, nargs="+", default=[0.0, 5.0])
    parser.add_argument("--loop", choices=["asyncio", "uvloop"], default="uvloop")
    return parser.parse_args()


async def _measure(streams: int, step_ms: float, seconds: float) -> Row:
    with tempfile.TemporaryDirectory(prefix="wire-") as folder:
        config = _config(Path(folder), step_ms)
        engine = EmbeddedEngine(config.listen)
        replica = Replica(
            "wire", launcher=LocalLauncher("w", engine_command(config)), engine=engine
        )
        replica.startup()
        await replica.wait_ready()
        try:
            engine_s, client_s, tokens, elapsed_s = await _load(engine, streams, seconds)
        finally:
            await replica.shutdown()
        bare_s, bare_tokens = _run_bare(config, streams, seconds / 2)
    return Row(
        streams=streams,
        step_ms=step_ms,
        tokens_per_s=tokens / elapsed_s,
        bare_us=bare_s / bare_tokens * 1e6,
        engine_us=engine_s / tokens * 1e6,
        client_us=client_s / tokens * 1e6,
    )


def _config(folder: Path, step_ms: float) -> EngineConfig:
    model = FakeModel(
        context_tokens=CONTEXT_TOKENS, kv_blocks=64 * CONTEXT_TOKENS // 16, step_s=step_ms / 1e3
    )
    checkpoint = folder / "model.json"
    checkpoint.write_bytes(msgspec.json.encode(model))
    return EngineConfig(
        checkpoint=str(checkpoint), model="fake", listen=f"unix:{folder}/s", runner="fake"
    )


async def _load(
    engine: EmbeddedEngine, streams: int, seconds: float
) -> tuple[float, float, int, float]:
    """Engine CPU, client CPU, tokens and seconds, after a warm-up."""
    received = [0]
    clients = [asyncio.create_task(_client(engine, number, received)) for number in range(streams)]
    await asyncio.sleep(0.5)
    process = psutil.Process(engine.info.pid)
    before = process.cpu_times()
    tokens, client_s, started_s = received[0], time.process_time(), time.monotonic()
    await asyncio.sleep(seconds)
    after = process.cpu_times()
    tokens = received[0] - tokens
    client_s = time.process_time() - client_s
    elapsed_s = time.monotonic() - started_s
    for client in clients:
        client.cancel()
    await asyncio.wait(clients)
    engine_s = after.user + after.system - before.user - before.system
    return engine_s, client_s, tokens, elapsed_s


async def _client(engine: EmbeddedEngine, number: int, received: list[int]) -> None:
    for turn in range(1_000_000):
        async for chunk in engine.generate(_request(f"client-{number}-{turn}")):
            received[0] += len(chunk.token_ids)


def _run_bare(config: EngineConfig, streams: int, seconds: float) -> tuple[float, int]:
    """CPU seconds and tokens of scheduler and fake runner alone."""
    runner = FakeRunner(config)
    loaded = runner.load(lambda _share, _what: None)
    scheduler = Scheduler(
        SchedulerConfig(context_tokens=CONTEXT_TOKENS), loaded.groups, loaded.end_token_ids
    )
    started = turn = 0
    tokens = 0
    began_s, end_s = time.process_time(), time.monotonic() + seconds
    while time.monotonic() < end_s:
        while started < streams:
            turn += 1
            started += 1
            scheduler.submit(_request(f"client-{turn}"), time.monotonic())
        plan = scheduler.plan(time.monotonic())
        outcome = scheduler.apply(plan, runner.run(plan), time.monotonic())
        tokens += len(outcome.chunks)
        started -= sum(chunk.finish_reason is not None for chunk in outcome.chunks)
    return time.process_time() - began_s, tokens


def _request(request_id: str) -> GenerateRequest:
    sampling = SamplingParams(max_tokens=TOKENS_PER_REQUEST, temperature=0.0, ignore_eos=True)
    return GenerateRequest(request_id=request_id, prompt_ids=tuple(range(64)), sampling=sampling)


if __name__ == "__main__":
    main()
