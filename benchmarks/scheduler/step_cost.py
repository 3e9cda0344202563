"""What the scheduler itself costs per step: `plan` and `apply` around a runner that does nothing.

    python benchmarks/scheduler/step_cost.py [--steps 2000] [--json FILE]

Loads, each at 1, 16, 100 and 1,000 running requests, blocks of 16 tokens:

    decode    every request decodes; block boundaries are spread evenly over the steps
    aligned   the same, but all requests reach their block boundaries in the same step: the p99
              is the step in which every one of them needs a block and publishes another
    mixed     a closed loop of 64-token answers to 256-token prompts: admissions, chunked
              prefill, prefix lookups and ends in most steps

Garbage collection is left on, as in the engine. The machine's load is printed, because it decides
the p99.
"""

import argparse
import json
import os
import platform
import time
from dataclasses import asdict, dataclass
from pathlib import Path

from steelyard.contract import GenerateRequest, SamplingParams
from steelyard.scheduling.config import GroupKind, KVGroup, SchedulerConfig
from steelyard.scheduling.scheduler import Scheduler
from steelyard.scheduling.step_plan import StepPlan, StepResult

BLOCK_TOKENS = 16
CONTEXT_TOKENS = 8192


@dataclass(frozen=True, slots=True)
class Row:
    """One load at one size; times in microseconds per step."""

    load: str
    running: int
    plan_p50_us: float
    plan_p99_us: float
    apply_p50_us: float
    apply_p99_us: float
    step_p50_us: float
    step_p99_us: float


class Bench:
    """A scheduler with `running` requests and a stopwatch on each half of its loop."""

    def __init__(self, running: int, *, step_tokens: int) -> None:
        blocks = running * (CONTEXT_TOKENS // BLOCK_TOKENS) + 1
        self.scheduler = Scheduler(
            SchedulerConfig(
                max_running=running,
                max_waiting=2 * running,
                max_step_tokens=step_tokens,
                context_tokens=CONTEXT_TOKENS,
                step_stretch=float("inf"),
            ),
            [KVGroup("full", GroupKind.FULL, BLOCK_TOKENS, blocks)],
            end_token_ids=(),
        )
        self._submitted = 0
        self._now_s = 0.0

    def submit(self, prompt_tokens: int, max_tokens: int) -> None:
        """Queue a request whose prompt is like no other."""
        self._submitted += 1
        prompt_ids = (self._submitted, *range(1, prompt_tokens))
        sampling = SamplingParams(max_tokens=max_tokens)
        request_id = f"request-{self._submitted}"
        request = GenerateRequest(request_id=request_id, prompt_ids=prompt_ids, sampling=sampling)
        self.scheduler.submit(request, self._now_s)

    def step(self) -> tuple[float, float, int]:
        """Run a step; returns microseconds of plan, of apply, and the requests that ended."""
        self._now_s += 0.01
        began = time.perf_counter()
        plan = self.scheduler.plan(self._now_s)
        planned = time.perf_counter()
        result = draw(plan)
        drawn = time.perf_counter()
        outcome = self.scheduler.apply(plan, result, self._now_s)
        applied = time.perf_counter()
        ended = sum(chunk.finish_reason is not None for chunk in outcome.chunks)
        return (planned - began) * 1e6, (applied - drawn) * 1e6, ended


def draw(plan: StepPlan) -> StepResult:
    """What a runner would return: some token for every slice that samples."""
    samples = sum(piece.samples for piece in plan.slices)
    return StepResult(token_ids=[7] * samples, logprobs=[None] * samples, elapsed_s=0.01)


def measure_decode(running: int, steps: int, *, spread: bool) -> Row:
    bench = Bench(running, step_tokens=80 * running)
    for number in range(running):
        bench.submit(64 + (number % BLOCK_TOKENS if spread else 0), CONTEXT_TOKENS - 128)
    while any(s.computed_tokens < s.prompt_tokens for s in bench.scheduler.running) or (
        bench.scheduler.waiting
    ):
        bench.step()
    name = "decode" if spread else "aligned"
    return summarise(name, running, [bench.step() for _ in range(steps)])


def measure_mixed(running: int, steps: int) -> Row:
    bench = Bench(running, step_tokens=running + 512)
    for number in range(running):
        bench.submit(256, 1 + number % 64)
    times = []
    for step in range(steps + 128):
        plan_us, apply_us, ended = bench.step()
        for _ in range(ended):
            bench.submit(256, 64)
        if step >= 128:
            times.append((plan_us, apply_us, ended))
    return summarise("mixed", running, times)


def summarise(load: str, running: int, times: list[tuple[float, float, int]]) -> Row:
    plans = [plan_us for plan_us, _, _ in times]
    applies = [apply_us for _, apply_us, _ in times]
    steps = [plan_us + apply_us for plan_us, apply_us, _ in times]
    return Row(load, running, *(q(v, p) for v in (plans, applies, steps) for p in (0.5, 0.99)))


def q(values: list[float], share: float) -> float:
    """The `share` quantile, by rank."""
    return sorted(values)[min(len(values) - 1, int(share * len(values)))]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--steps", type=int, default=2000)
    parser.add_argument("--json", type=Path, help="also write the rows to this file")
    options = parser.parse_args()
    print(f"{platform.python_implementation()} {platform.python_version()},", end=" ")
    print(f"{os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}")
    print("µs per step           plan p50     p99   apply p50     p99    step p50     p99")
    rows = []
    for load in ("decode", "aligned", "mixed"):
        for running in (1, 16, 100, 1000):
            if load == "mixed":
                row = measure_mixed(running, options.steps)
            else:
                row = measure_decode(running, options.steps, spread=load == "decode")
            rows.append(row)
            print(
                f"{load:8} {running:5} running {row.plan_p50_us:8.0f} {row.plan_p99_us:7.0f}"
                f"   {row.apply_p50_us:9.0f} {row.apply_p99_us:7.0f}"
                f"   {row.step_p50_us:9.0f} {row.step_p99_us:7.0f}",
                flush=True,
            )
    if options.json:
        options.json.write_text(json.dumps([asdict(row) for row in rows], indent=2) + "\n")


if __name__ == "__main__":
    main()
