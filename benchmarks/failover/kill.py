"""One of several replicas dies, or is stopped, under streams: what their clients see.

    python -m benchmarks.failover.kill --streams 60 --replicas 3
    python -m benchmarks.failover.kill --name vllm_pair --replicas 2 --streams 16 --only "kill -9" \
        --return-limit-s 300 --set backend=vllm --set vllm.python=/opt/vllm/bin/python …

The same greedy streams run three times on a real service: undisturbed, with a SIGKILL, and with a
SIGSTOP of the busiest replica. Tokens and usage must be those of the first run.
"""

import argparse
import asyncio
import os
import signal
import sys
import time
from dataclasses import dataclass
from importlib.metadata import version

from benchmarks.engines.machine import describe_machine
from benchmarks.failover.record import Finding, save
from benchmarks.failover.service import Service, running_service

from steelyard.lab.drill import DrillReport, DrillStream, begin_streams

__all__ = ["main"]

_AFTER_S = 1.5
"""The failure comes so long after the streams have begun."""
_FAILURES = {"kill -9": signal.SIGKILL, "SIGSTOP": signal.SIGSTOP}


@dataclass(frozen=True)
class Run:
    """What one way to fail has cost."""

    streams: list[DrillStream]
    at_s: float
    moves: float
    recovery_s: float
    """From the failure (or SIGCONT) until the replica is given requests again."""
    took_s: float


def main() -> None:
    options = _options()
    findings = asyncio.run(_measure(options))
    facts = describe_machine({"steelyard": version("steelyard")})
    command = "python -m benchmarks.failover.kill " + " ".join(sys.argv[1:])
    print(save(options.name, facts, command.strip(), findings))


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--streams", type=int, default=60)
    parser.add_argument("--replicas", type=int, default=3)
    parser.add_argument("--tokens", type=int, default=64)
    parser.add_argument("--model", default="smollm2-135m")
    parser.add_argument("--served-name", default="smollm2-135m")
    parser.add_argument("--name", default="kill", help="of the files with the results")
    parser.add_argument("--only", choices=list(_FAILURES), action="append", help="ways to fail")
    parser.add_argument("--set", action="append", default=[], dest="sets", help="further settings")
    parser.add_argument("--return-limit-s", type=float, default=60.0, help="until it is back")
    return parser.parse_args()


async def _measure(options: argparse.Namespace) -> list[Finding]:
    names = [f"main/{number}" for number in range(options.replicas)]
    prompts = [f"Story {number}: once upon a time" for number in range(options.streams)]
    fields = {"model": options.served_name, "max_tokens": options.tokens}
    sets = [f"replicas={options.replicas}", f"served_name={options.served_name}", *options.sets]
    settings = [part for each in sets for part in ("--set", each)]
    async with running_service(options.model, *settings) as service:
        for name in names:
            await service.until(name, "healthy")

        def begin() -> "list[asyncio.Task[DrillStream]]":
            return begin_streams(service.session, service.url, prompts, **fields)

        expected = await asyncio.gather(*begin())
        began_s = time.monotonic()
        # Twice: the second run has the prompts in its caches, as the disturbed ones have.
        usual = await asyncio.gather(*begin())
        undisturbed = Run(usual, began_s, 0, 0, time.monotonic() - began_s)
        runs = {"undisturbed": undisturbed}
        for title in options.only or _FAILURES:
            number, limit_s = _FAILURES[title], options.return_limit_s
            runs[title] = await _disturb(service, names, begin(), number, limit_s)
            for name in names:
                await service.until(name, "healthy")
    return [_judge(title, run, expected) for title, run in runs.items()]


async def _disturb(
    service: Service,
    names: list[str],
    tasks: list[asyncio.Task[DrillStream]],
    number: int,
    limit_s: float,
) -> Run:
    began_s = time.monotonic()
    moved_before = await service.moves()
    await asyncio.sleep(_AFTER_S)
    name = await service.busiest(names)
    pid = service.pid(name)
    at_s = time.monotonic()
    os.kill(pid, number)
    returning = None
    if number == signal.SIGKILL:
        returning = asyncio.create_task(_return(service, name, limit_s))
    streams = await asyncio.gather(*tasks)
    took_s = time.monotonic() - began_s
    if returning is None:
        await service.until(name, "ejected")
        at_cont_s = time.monotonic()
        os.kill(pid, signal.SIGCONT)
        recovery_s = await _return(service, name, limit_s) - at_cont_s
    else:
        recovery_s = await returning - at_s
    moves = await service.moves() - moved_before
    return Run(streams, at_s, moves, recovery_s, took_s)


async def _return(service: Service, name: str, limit_s: float) -> float:
    """When the replica is back."""
    await service.until(name, "absent", "ejected")
    async with asyncio.timeout(limit_s):
        await service.until(name, "returning", "healthy")
    return time.monotonic()


def _judge(title: str, run: Run, expected: list[DrillStream]) -> Finding:
    report = DrillReport.of(run.streams, expected, run.at_s)
    figures = {
        "streams": report.streams,
        "requests failed": report.failed,
        "tokens lost": report.tokens_lost,
        "tokens repeated": report.tokens_repeated,
        "usage that differs": report.usage_differs,
        "moves": run.moves,
        "gap p50 s": report.gap_p50_s,
        "gap p99 s": report.gap_p99_s,
        "gap max s": report.gap_max_s,
        "recovery s": run.recovery_s,
        "duration s": run.took_s,
    }
    return Finding(title, {name: round(value, 3) for name, value in figures.items()})


if __name__ == "__main__":
    main()
