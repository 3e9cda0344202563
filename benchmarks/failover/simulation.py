"""The gateway's failover over 1,000 simulated replicas that fail at random: 1,000 stories.

    python -m benchmarks.failover.simulation --seeds 1000     # all of them
    python -m benchmarks.failover.simulation --seed 17        # one of them again, to the token

`simulated_fleet` tells the stories and says what must hold. A seed that fails is named at once,
with the command that repeats it.
"""

import argparse
import sys
import time
import traceback
from collections import Counter
from importlib.metadata import version

from benchmarks.engines.machine import describe_machine
from benchmarks.failover.record import Finding, save
from benchmarks.failover.simulated_fleet import Outcome, Scale, simulate

__all__ = ["main"]


def main() -> None:
    options = _options()
    scale = Scale(options.replicas, options.requests, options.faults)
    if options.seed is not None:
        print(simulate(options.seed, scale))
        return
    began_s = time.process_time()
    outcomes, failed = _tell_all(options, scale)
    findings = [_sum_up(outcomes, failed, scale, time.process_time() - began_s)]
    command = " ".join(["python -m benchmarks.failover.simulation", *sys.argv[1:]])
    print(
        save("simulation", describe_machine({"steelyard": version("steelyard")}), command, findings)
    )
    sys.exit(bool(failed))


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--seeds", type=int, default=1000, help="how many, from 0")
    parser.add_argument("--seed", type=int, help="this one alone")
    parser.add_argument("--replicas", type=int, default=1000)
    parser.add_argument("--requests", type=int, default=250)
    parser.add_argument("--faults", type=int, default=120)
    return parser.parse_args()


def _tell_all(options: argparse.Namespace, scale: Scale) -> tuple[list[Outcome], list[int]]:
    """All seeds; Ctrl-C ends it with those that were told."""
    outcomes: list[Outcome] = []
    failed: list[int] = []
    try:
        for seed in range(options.seeds):
            _tell(seed, scale, outcomes, failed)
    except KeyboardInterrupt:
        print(f"interrupted after {len(outcomes) + len(failed)} seeds", file=sys.stderr)
    return outcomes, failed


def _tell(seed: int, scale: Scale, outcomes: list[Outcome], failed: list[int]) -> None:
    try:
        outcomes.append(simulate(seed, scale))
    except AssertionError:
        traceback.print_exc()
        print(f"failed: python -m benchmarks.failover.simulation --seed {seed}", flush=True)
        failed.append(seed)
    if sys.stderr.isatty():
        print(f"\r{seed + 1}", end="", file=sys.stderr, flush=True)


def _sum_up(outcomes: list[Outcome], failed: list[int], scale: Scale, cpu_s: float) -> Finding:
    ends: Counter[str] = sum((outcome.ends for outcome in outcomes), Counter())
    faults: Counter[str] = sum((outcome.faults for outcome in outcomes), Counter())
    figures = {
        "seeds": len(outcomes) + len(failed),
        "seeds that failed": len(failed),
        "replicas": scale.replicas,
        "requests": ends.total(),
        "tokens": sum(outcome.tokens for outcome in outcomes),
        "faults": faults.total(),
        "moves": sum(outcome.moves for outcome in outcomes),
        **{f"ended: {end}": count for end, count in ends.most_common()},
        **{f"fault: {fault}": count for fault, count in faults.most_common()},
        "CPU time s": round(cpu_s, 1),
    }
    return Finding("", {name: float(value) for name, value in figures.items()})


if __name__ == "__main__":
    main()
