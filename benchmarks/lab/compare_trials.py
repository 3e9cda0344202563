"""Does `steelyard bench compare` tell a slowdown of 10 % from none? Many times, and counted.

    python -m benchmarks.lab.compare_trials mock --trials 20
    python -m benchmarks.lab.compare_trials engine --trials 5

Against the mock, both targets have the same noise: latencies vary from token to token, and on top
of it each mock has good and bad moments of its own (`--drift-cv`). Trials with and without a
slowdown run side by side. On the real engine the slowdown is planted by stopping its processes for
a tenth of the time, a millisecond in ten.
"""

import argparse
import contextlib
import json
import multiprocessing
import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec
import psutil
import uvloop
from benchmarks.engines.machine import describe_machine
from benchmarks.engines.quiet import QuietPhases
from benchmarks.lab.mock_process import running_mock

from steelyard.lab.bench.session import Session, SessionOptions
from steelyard.lab.judge import BlockOptions, Verdict, compare_groups, measure_groups
from steelyard.lab.load import ClosedLoop, Fixed, OpenLoop, Synthetic, Workload, steady
from steelyard.lab.mock.priority import run_promptly

_SLOWDOWN = 0.10
_RESULTS = Path(__file__).parent / "results"
_STEELYARD = Path(sys.executable).parent / "steelyard"
_TTFT_MS, _ITL_MS = 40.0, 5.0
_STOP_EVERY_S = 0.010


@dataclass(frozen=True)
class Plan:
    """What every trial measures."""

    workload: Workload
    groups: int


MOCK_PLAN = Plan(
    Workload(
        arrivals=OpenLoop(steady(60, 0.6)), content=Synthetic(input=Fixed(40), output=Fixed(16))
    ),
    groups=6,
)
ENGINE_PLAN = Plan(
    Workload(
        arrivals=ClosedLoop(2, duration_s=1.5), content=Synthetic(input=Fixed(64), output=Fixed(16))
    ),
    groups=6,
)


def main() -> None:
    options = _options()
    begun_s = time.monotonic()
    quiet = QuietPhases(options.quiet_file, phase_s=450)
    try:
        if options.target == "mock":
            trials = _mock_trials(options.trials, options.drift_cv, quiet)
        else:
            trials = _engine_trials(options.trials, quiet)
    finally:
        quiet.end()
    found = {
        "target": options.target,
        "slowdown": _SLOWDOWN,
        "drift_cv": options.drift_cv if options.target == "mock" else None,
        "wall_s": round(time.monotonic() - begun_s, 1),
        "command": f"python -m benchmarks.lab.compare_trials {options.target} "
        f"--trials {options.trials}",
        "machine": msgspec.to_builtins(describe_machine({})),
        "counts": _counts(trials),
        "trials": trials,
    }
    options.out.mkdir(parents=True, exist_ok=True)
    name = f"compare_trials_{options.target}"
    (options.out / f"{name}.json").write_text(json.dumps(found, indent=1) + "\n")
    page = _page(found)
    (options.out / f"{name}.md").write_text(page)
    print(page)


def _mock_trials(count: int, drift_cv: float, quiet: QuietPhases) -> list[dict[str, Any]]:
    def flags(factor: float, seed: int) -> dict[str, object]:
        return {
            "ttft_ms": f"gamma:{_TTFT_MS * factor},0.15",
            "itl_ms": f"gamma:{_ITL_MS * factor},0.2",
            "drift_cv": drift_cv,
            "drift_s": 2,
            "seed": seed,
        }

    with (
        running_mock(**flags(1, 1)) as base,
        running_mock(**flags(1, 2)) as same,
        running_mock(**flags(1 + _SLOWDOWN, 3)) as slow,
    ):
        pairs = [(base.url, same.url), (base.url, slow.url)]
        context = multiprocessing.get_context("spawn")
        with context.Pool(2, initializer=run_promptly) as pool:
            trials = []
            for number in range(count):
                quiet.check()
                # One of either kind at a time: they disturb each other no more than machines do.
                tasks = [(MOCK_PLAN, pair, number, bool(at)) for at, pair in enumerate(pairs)]
                trials += pool.starmap(_run_trial, tasks)
        return trials


def _engine_trials(count: int, quiet: QuietPhases) -> list[dict[str, Any]]:
    trials = []
    with _engine() as (base, _), _engine() as (other, pid):
        for number in range(2 * count):
            quiet.check()
            is_slow = number % 2 == 1
            with _slowed(pid) if is_slow else contextlib.nullcontext():
                trials.append(_run_trial(ENGINE_PLAN, (base, other), number, is_slow))
    return trials


def _run_trial(plan: Plan, urls: tuple[str, str], number: int, is_slow: bool) -> dict[str, Any]:
    return uvloop.run(_trial(plan, urls, number, is_slow=is_slow))


async def _trial(
    plan: Plan, urls: tuple[str, str], number: int, *, is_slow: bool
) -> dict[str, Any]:
    seed = 1000 * (2 * number + is_slow + 1)
    workload = msgspec.structs.replace(plan.workload, seed=seed)
    options = BlockOptions(workload=workload, groups=plan.groups)
    begun_s = time.monotonic()
    left, right = [await Session.open(SessionOptions(url=url)) for url in urls]
    groups = await measure_groups(left, right, options)
    comparison = compare_groups(("A", "B"), groups, options)
    print(number, "slow" if is_slow else "same", comparison.words, file=sys.stderr)
    return {
        "number": number,
        "is_slow": is_slow,
        "verdict": comparison.verdict.value,
        "is_valid": comparison.is_valid,
        "words": comparison.words,
        "seconds": round(time.monotonic() - begun_s, 1),
        "changes": {d.name: msgspec.to_builtins(d.change) for d in comparison.differences},
        "detectable": {d.name: d.detectable for d in comparison.differences},
    }


@contextlib.contextmanager
def _engine() -> Iterator[tuple[str, int]]:
    """A server of the small real model, and its process."""
    command = [str(_STEELYARD), "serve", "--port", "0"]
    log = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
    assert log.stderr is not None
    try:
        for line in log.stderr:
            found = re.search(r"(http://127\.0\.0\.1:\d+)", line)
            if found:
                break
        else:
            raise RuntimeError("the server did not start")
        threading.Thread(target=log.stderr.read, daemon=True).start()
        yield found[1], log.pid
    finally:
        log.send_signal(signal.SIGTERM)
        log.wait(timeout=60)


@contextlib.contextmanager
def _slowed(pid: int) -> Iterator[None]:
    """Stops the engine's processes for that share of the time which makes them 10 % slower."""
    ended = threading.Event()
    family = [child.pid for child in psutil.Process(pid).children(recursive=True)]
    stopped_s = _STOP_EVERY_S * _SLOWDOWN / (1 + _SLOWDOWN)

    def stop_and_go() -> None:
        while not ended.wait(_STOP_EVERY_S - stopped_s):
            for one in family:
                os.kill(one, signal.SIGSTOP)
            time.sleep(stopped_s)
            for one in family:
                os.kill(one, signal.SIGCONT)

    thread = threading.Thread(target=stop_and_go)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()


def _counts(trials: list[dict[str, Any]]) -> dict[str, dict[str, int]]:
    return {
        kind: {
            verdict.value: sum(
                trial["verdict"] == verdict.value and trial["is_slow"] is is_slow
                for trial in trials
            )
            for verdict in Verdict
        }
        for kind, is_slow in (("slowdown", True), ("no change", False))
    }


def _page(found: dict[str, Any]) -> str:
    machine = found["machine"]
    lines = ["| planted | worse | better | alike | undecided |", "|---|---|---|---|---|"]
    for kind, counts in found["counts"].items():
        planted = f"{kind} of {found['slowdown']:.0%}" if kind == "slowdown" else kind
        cells = (str(counts[name]) for name in ("worse", "better", "alike", "undecided"))
        lines.append(f"| {planted} | {' | '.join(cells)} |")
    seconds = [trial["seconds"] for trial in found["trials"]]
    return (
        "\n".join(lines)
        + f"\n\nHardware: {machine['cpu_model']}, {machine['cpus']} cores; command: "
        f"`{found['command']}`; commit: `{machine['commit']}`. "
        f"{sum(seconds) / len(seconds):.0f} s per trial, {found['wall_s']:.0f} s in all.\n"
    )


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("target", choices=("mock", "engine"))
    parser.add_argument("--trials", type=int, default=20, help="of either kind")
    parser.add_argument("--drift-cv", type=float, default=0.03)
    parser.add_argument(
        "--quiet-file", type=Path, help="exists while it measures; others wait until it is gone"
    )
    parser.add_argument("--out", type=Path, default=_RESULTS)
    return parser.parse_args()


if __name__ == "__main__":
    run_promptly()
    main()
