"""Faults that load generators are known for, planted into our client: does every run find its own?

    python -m benchmarks.lab.planted_faults

Each trial is a run of the real client, alone in its process, against a mock in another one. A fault
counts as found when the audit marks the run INVALID and names that fault first; honest runs must be
valid. Writes `planted_faults.json` and `planted_faults.md`.
"""

import argparse
import asyncio
import dataclasses
import json
import time
from collections.abc import Callable, Coroutine, Iterator
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import uvloop
from benchmarks.engines.machine import describe_machine
from benchmarks.lab.mock_process import running_mock

from steelyard.lab.audit import Audit, Evidence, audit
from steelyard.lab.client import Instruments, Job, Limits, Observation, Target
from steelyard.lab.client.exchange import Exchange
from steelyard.lab.client.pool import ConnectionPool
from steelyard.lab.load import Fixed, OpenLoop, Plan, Synthetic, Workload, make_plan, new_nonce
from steelyard.lab.load import steady as steady_rate
from steelyard.lab.mock.priority import run_promptly
from steelyard.lab.window import find_window

_RATE, _SECONDS = 40, 4
_LATE_S = 0.7
_JUMP_S = 3.0


@dataclasses.dataclass(frozen=True, kw_only=True)
class Fault:
    """What is wrong with the client, and the check that must say so."""

    name: str
    check: str
    """Empty: nothing is wrong."""
    instruments: Callable[[], Instruments] = Instruments
    start_in_s: float = 0.1
    meanwhile: Callable[[], Coroutine[Any, Any, None]] | None = None


@dataclasses.dataclass(frozen=True, kw_only=True)
class Row:
    """All trials of a fault."""

    fault: str
    check: str
    trials: int
    invalid: int
    named: int
    """Of these, with the right reason first."""
    example: str
    """The first reason of the first trial."""


def main() -> None:
    options = _options()
    rows = []
    with running_mock(ttft_ms=60, itl_ms=5) as mock:
        run_promptly()  # as client processes do
        for fault in FAULTS:
            trials = options.trials * (1 if fault.check else 2)
            judged = [uvloop.run(_judge(mock.url, fault, seed)) for seed in range(trials)]
            rows.append(_row(fault, judged))
            print(rows[-1], flush=True)
    facts = msgspec.to_builtins(describe_machine({}))
    results = {"machine": facts, "rows": [dataclasses.asdict(row) for row in rows]}
    options.out.mkdir(parents=True, exist_ok=True)
    (options.out / "planted_faults.json").write_text(json.dumps(results, indent=1) + "\n")
    page = "\n".join(_page(facts, rows)) + "\n"
    (options.out / "planted_faults.md").write_text(page)
    print(page)


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--trials", type=int, default=10, help="of each; twice as many honest ones")
    parser.add_argument("--out", type=Path, default=Path(__file__).with_name("results"))
    return parser.parse_args()


async def _judge(url: str, fault: Fault, seed: int) -> Audit:
    workload = Workload(
        arrivals=OpenLoop(steady_rate(_RATE, _SECONDS)),
        content=Synthetic(input=Fixed(20), output=Fixed(8)),
        seed=seed,
    )
    job = Job(
        workload=workload,
        target=Target(url=url, model="mock"),
        nonce=new_nonce(),
        run_id="planted",
        limits=Limits(stall_s=5),
    )
    observation = Observation(job, fault.instruments())
    observation.prepare()
    beside = None if fault.meanwhile is None else asyncio.create_task(fault.meanwhile())
    seen = await observation.run(time.monotonic() + fault.start_in_s)
    if beside is not None:
        beside.cancel()
    plan = make_plan(workload)
    measured = find_window(seen.records, plan)
    return audit(
        Evidence(
            workload=workload,
            plan=plan,
            records=seen.records,
            health=(seen.health,),
            window=measured.window,
            is_settled=measured.is_settled,
        )
    )


def _row(fault: Fault, judged: list[Audit]) -> Row:
    invalid = [one for one in judged if not one.is_valid]
    named = [
        one for one in invalid if fault.check and one.reasons[0] == one.check(fault.check).message
    ]
    return Row(
        fault=fault.name,
        check=fault.check,
        trials=len(judged),
        invalid=len(invalid),
        named=len(named),
        example=invalid[0].reasons[0] if invalid else "",
    )


def _page(facts: dict[str, object], rows: list[Row]) -> Iterator[str]:
    yield "# Faults planted into the client\n"
    yield (
        f"{facts['cpus']} CPUs ({facts['cpu_model']}), {facts['memory_gib']} GiB, kernel "
        f"{facts['kernel']}, Python {facts['python']}; {facts['date']}, commit {facts['commit']}; "
        "`python -m benchmarks.lab.planted_faults`.\n"
    )
    yield "| planted | runs | INVALID | right reason first | what the first one said |"
    yield "|---|---|---|---|---|"
    for row in rows:
        named = row.named if row.check else "—"
        yield f"| {row.fault} | {row.trials} | {row.invalid} | {named} | {row.example or '—'} |"


class _CappedSender:
    """A pool that queues silently, as HTTP libraries do."""

    def __init__(self, pool: ConnectionPool) -> None:
        self._pool = pool
        self._places = asyncio.Semaphore(3)

    async def send(self, exchange: Exchange, request: bytes) -> None:
        async with self._places:
            await self._pool.send(exchange, request)
            await exchange.done


async def _burn() -> None:
    """Work on the event loop that takes longer than it may, as slow parsing does."""
    while True:
        end_s = time.monotonic() + 0.06
        while time.monotonic() < end_s:
            pass
        await asyncio.sleep(0.005)


def _shared_stream() -> Instruments:
    """Four workers that add the same gaps to the same time."""

    def repeated(plan: Plan) -> Plan:
        gaps = np.random.default_rng(42).exponential(1 / _RATE, _RATE * _SECONDS // 10)
        return dataclasses.replace(plan, starts_s=np.cumsum(np.repeat(gaps, 10)))

    return Instruments(plan=repeated)


def _jumping_clock() -> Instruments:
    """A wall clock that is set while the run goes on."""
    begun_s = time.monotonic()

    def clock() -> float:
        return time.time() + (_JUMP_S if time.monotonic() > begun_s + 1.5 else 0.0)

    return Instruments(unix_now=clock)


def _shifted() -> Instruments:
    """Everything happens a little later than it should."""

    def shifted(plan: Plan) -> Plan:
        assert plan.starts_s is not None
        return dataclasses.replace(plan, starts_s=plan.starts_s + _LATE_S)

    return Instruments(plan=shifted)


FAULTS = (
    Fault(name="nothing", check=""),
    Fault(name="slow CPU: 60 ms of work at a time on the loop", check="loop_lag", meanwhile=_burn),
    Fault(name="late start, caught up with", check="late_start", start_in_s=-_LATE_S),
    Fault(name="late start, all shifted", check="late_start", instruments=_shifted),
    Fault(
        name="hidden cap of 3 connections",
        check="connections",
        instruments=lambda: Instruments(sender=_CappedSender),
    ),
    Fault(
        name="random stream shared by workers", check="random_streams", instruments=_shared_stream
    ),
    Fault(name="clock step of 3 s", check="clock", instruments=_jumping_clock),
)


if __name__ == "__main__":
    main()
