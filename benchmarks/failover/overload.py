"""Three times as many requests as the replicas can serve: what is still served in time.

    python -m benchmarks.failover.overload

Poisson arrivals over simulated replicas in virtual time. *Good* is an answer whose first token
came within the objective. Rejecting takes no virtual time; its cost is the processor time of a
refused call, measured apart.
"""

import argparse
import asyncio
import random
import sys
import time
from contextlib import aclosing
from dataclasses import dataclass, field
from importlib.metadata import version

from benchmarks.engines.machine import describe_machine
from benchmarks.failover.record import Finding, save
from tests.simulated_engine import SimulatedEngine
from tests.virtual_loop import LoopClock, run_virtually

from steelyard.contract import GenerateRequest, SamplingParams
from steelyard.contract.errors import Overloaded
from steelyard.gateway.failover import FailoverConfig, FailoverEngine
from steelyard.lab.drill.report import quantile
from steelyard.policies.config import PoliciesConfig, SheddingConfig
from steelyard.telemetry import Metrics

__all__ = ["main"]

_REPLICAS, _PLACES, _ITL_S, _OUTPUT_TOKENS = 4, 16, 0.02, 100
_CAPACITY_PER_S = _REPLICAS * _PLACES / (_ITL_S * (_OUTPUT_TOKENS + 1))
_SETTLE_S = 15.0
_WARM_UP_S = 20.0
"""Of the load; not counted."""


@dataclass
class _Seen:
    ttft_s: list[float] = field(default_factory=list)
    refusal_s: list[float] = field(default_factory=list)
    refusal_cpu_s: list[float] = field(default_factory=list)


def main() -> None:
    options = _options()
    findings = [
        run_virtually(_offer(factor, options))
        for factor in (0.5, 1.0, 1.5, 3.0, 10.0)
    ]  # fmt: skip
    command = " ".join(["python -m benchmarks.failover.overload", *sys.argv[1:]])
    facts = describe_machine({"steelyard": version("steelyard")})
    print(save("overload", facts, command, findings))


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--objective", type=float, default=2.0, help="TTFT in seconds")
    parser.add_argument("--max-wait", type=float, default=1.0, help="predicted, in seconds")
    parser.add_argument("--duration", type=float, default=120.0, help="virtual seconds")
    return parser.parse_args()


async def _offer(factor: float, options: argparse.Namespace) -> Finding:
    clock = LoopClock()
    shedding = SheddingConfig(max_wait_s=options.max_wait)
    failover = FailoverEngine(
        FailoverConfig(policies=PoliciesConfig(shedding=shedding)),
        meter=Metrics(clock=clock).failover,
        clock=clock,
    )
    for number in range(_REPLICAS):
        engine = SimulatedEngine(str(number), itl_s=_ITL_S, ttft_s=_ITL_S, max_running=_PLACES)
        failover.add(engine.name, engine)
    failover.startup()
    await asyncio.sleep(_SETTLE_S)
    chance, seen, tasks = random.Random(0), _Seen(), []
    began_s = clock.now()
    while (elapsed_s := clock.now() - began_s) < options.duration + _WARM_UP_S:
        into = seen if elapsed_s >= _WARM_UP_S else _Seen()
        tasks.append(asyncio.create_task(_ask(failover, clock, len(tasks), into)))
        await asyncio.sleep(chance.expovariate(factor * _CAPACITY_PER_S))
    await asyncio.gather(*tasks)
    await failover.close()
    return _sum_up(factor, seen, options)


async def _ask(failover: FailoverEngine, clock: LoopClock, number: int, seen: _Seen) -> None:
    request = GenerateRequest(
        request_id=str(number),
        prompt_ids=(1, 2, 1000 + number),
        sampling=SamplingParams(max_tokens=_OUTPUT_TOKENS),
    )
    began_s, began_cpu_s = clock.now(), time.process_time()
    first_s = None
    try:
        async with aclosing(failover.generate(request)) as chunks:
            async for _ in chunks:
                first_s = clock.now() if first_s is None else first_s
    except Overloaded:
        seen.refusal_s.append(clock.now() - began_s)
        seen.refusal_cpu_s.append(time.process_time() - began_cpu_s)
    else:
        assert first_s is not None
        seen.ttft_s.append(first_s - began_s)


def _sum_up(factor: float, seen: _Seen, options: argparse.Namespace) -> Finding:
    good = sum(ttft_s <= options.objective for ttft_s in seen.ttft_s)
    offered = len(seen.ttft_s) + len(seen.refusal_s)
    figures = {
        "offered/s": offered / options.duration,
        "good/s": good / options.duration,
        "good/s of capacity": good / options.duration / _CAPACITY_PER_S,
        "late": len(seen.ttft_s) - good,
        "refused": len(seen.refusal_s),
        "TTFT p50 s": quantile(seen.ttft_s, 0.5),
        "TTFT p99 s": quantile(seen.ttft_s, 0.99),
    }
    if seen.refusal_s:
        figures["refusal, virtual ms, max"] = max(seen.refusal_s) * 1000
        figures["refusal, CPU ms, p99"] = quantile(seen.refusal_cpu_s, 0.99) * 1000
    return Finding(f"{factor:g}×", {name: round(value, 3) for name, value in figures.items()})


if __name__ == "__main__":
    main()
