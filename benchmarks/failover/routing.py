"""Prefix routing on Mooncake's hour of conversations, against round robin, over 4 replicas.

    python -m benchmarks.failover.routing TRACE

TRACE is `conversation_trace.jsonl` of github.com/kvcache-ai/Mooncake (FAST 25): 12,031 requests
with their arrival times, lengths, and hashes of every 512 tokens of the prompt. All is divided by
8: a hash stands for 64 tokens, and an engine reads 1/8 as fast as one of a large model would.
"""

import argparse
import asyncio
import sys
from collections.abc import Iterator
from contextlib import aclosing
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Literal

import msgspec
from benchmarks.engines.machine import describe_machine
from benchmarks.failover.caching_engine import CachingEngine
from benchmarks.failover.record import Finding, save
from tests.virtual_loop import LoopClock, run_virtually

from steelyard.contract import GenerateRequest, SamplingParams
from steelyard.gateway.failover import FailoverConfig, FailoverEngine
from steelyard.lab.drill.report import quantile
from steelyard.policies.config import PoliciesConfig, RoutingConfig
from steelyard.telemetry import Metrics

__all__ = ["main"]

_SCALE = 8
_BLOCK_TOKENS = 512 // _SCALE
_SETTLE_S = 15.0
Policy = Literal["round_robin", "least_loaded", "least_ttft"]


class _Line(msgspec.Struct):
    timestamp: int
    """Milliseconds from the start."""
    input_length: int
    output_length: int
    hash_ids: list[int]


@dataclass(frozen=True)
class _Setting:
    replicas: int
    cache_tokens: int
    """Per replica, in tokens of the trace."""
    prefill_tokens_per_s: int
    itl_s: float


def main() -> None:
    options = _options()
    trace = list(_read(options.trace, options.requests))
    setting = _Setting(options.replicas, options.cache_tokens, options.prefill, options.itl)
    policies: tuple[Policy, ...] = ("round_robin", "least_loaded", "least_ttft")
    findings = [run_virtually(_replay(trace, policy, setting)) for policy in policies]
    command = " ".join(["python -m benchmarks.failover.routing TRACE", *sys.argv[2:]])
    print(save("routing", describe_machine({"steelyard": version("steelyard")}), command, findings))


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("trace", type=Path)
    parser.add_argument("--requests", type=int, help="only the first ones")
    parser.add_argument("--replicas", type=int, default=4)
    parser.add_argument("--cache-tokens", type=int, default=1_000_000)
    parser.add_argument("--prefill", type=int, default=16_000, help="tokens/s of one replica")
    parser.add_argument("--itl", type=float, default=0.02)
    return parser.parse_args()


def _read(path: Path, limit: int | None) -> Iterator[_Line]:
    with path.open("rb") as lines:
        for number, line in enumerate(lines):
            if number == limit:
                return
            yield msgspec.json.decode(line, type=_Line)


async def _replay(trace: list[_Line], policy: Policy, setting: _Setting) -> Finding:
    clock = LoopClock()
    routing = RoutingConfig(policy=policy, block_tokens=_BLOCK_TOKENS)
    failover = FailoverEngine(
        FailoverConfig(policies=PoliciesConfig(routing=routing)),
        meter=Metrics(clock=clock).failover,
        clock=clock,
    )
    engines = [_engine(f"main/{number}", setting) for number in range(setting.replicas)]
    for engine in engines:
        failover.add(engine.name, engine)
    failover.startup()
    await asyncio.sleep(_SETTLE_S)
    began_s = clock.now()
    waits_s = await asyncio.gather(
        *(_ask(failover, clock, began_s, number, line) for number, line in enumerate(trace))
    )
    await failover.close()
    return _sum_up(policy, engines, waits_s, setting)


def _engine(name: str, setting: _Setting) -> CachingEngine:
    return CachingEngine(
        name,
        block_tokens=_BLOCK_TOKENS,
        cache_blocks=setting.cache_tokens // _SCALE // _BLOCK_TOKENS,
        prefill_tokens_per_s=setting.prefill_tokens_per_s / _SCALE,
        itl_s=setting.itl_s,
    )


async def _ask(
    failover: FailoverEngine, clock: LoopClock, began_s: float, number: int, line: _Line
) -> float:
    """The time to the first token."""
    arrival_s = began_s + line.timestamp / 1000
    await clock.sleep(arrival_s - clock.now())
    size = _BLOCK_TOKENS
    prompt = tuple(token for key in line.hash_ids for token in range(key * size, (key + 1) * size))[
        : max(line.input_length // _SCALE, 1)
    ]
    request = GenerateRequest(
        request_id=str(number),
        prompt_ids=prompt,
        sampling=SamplingParams(max_tokens=max(line.output_length, 1)),
    )
    first_s = None
    async with aclosing(failover.generate(request)) as chunks:
        async for _ in chunks:
            first_s = clock.now() if first_s is None else first_s
    assert first_s is not None
    return first_s - arrival_s


def _sum_up(
    policy: str, engines: list[CachingEngine], waits_s: list[float], setting: _Setting
) -> Finding:
    prompt_tokens = sum(engine.prompt_tokens for engine in engines)
    works = [engine.work_s + engine.output_tokens * setting.itl_s / 32 for engine in engines]
    tokens = [e.prompt_tokens - e.cached_tokens + e.output_tokens for e in engines]
    figures = {
        "requests": len(waits_s),
        "prompt tokens from the cache": sum(e.cached_tokens for e in engines) / prompt_tokens,
        "computed tokens, max/mean": max(tokens) / (sum(tokens) / len(tokens)),
        "engine time, max/mean": max(works) / (sum(works) / len(works)),
        "TTFT p50 s": quantile(waits_s, 0.5),
        "TTFT p99 s": quantile(waits_s, 0.99),
    }
    return Finding(policy, {name: round(value, 3) for name, value in figures.items()})


if __name__ == "__main__":
    main()
