"""Does `steelyard bench explain` name the bottleneck that was planted?

    python -m benchmarks.lab.bottlenecks

One run against the mock for each of its presets, and one without any, with the metrics of vLLM,
of Steelyard, or of both (an engine of the one behind a gateway of the other).
"""

import argparse
import json
import sys
from pathlib import Path
from typing import Any

import msgspec
import uvloop
from benchmarks.engines.machine import describe_machine
from benchmarks.engines.quiet import QuietPhases
from benchmarks.lab.mock_process import running_mock

from steelyard.lab.bench.session import Session, SessionOptions
from steelyard.lab.explain import explain
from steelyard.lab.load import ClosedLoop, Synthetic, Uniform, Workload
from steelyard.lab.result import RunResult

_RESULTS = Path(__file__).parent / "results"
_PLANTED = ("queue", "prefill", "decode", "kv", "gateway", "client", "none")
_USERS = 24


def main() -> None:
    options = _options()
    quiet = QuietPhases(options.quiet_file, phase_s=450)
    rows = []
    try:
        for metrics in ("both", "vllm", "steelyard"):
            for planted in _PLANTED:
                quiet.check()
                rows.append(_row(planted, metrics, options.duration))
                print(rows[-1]["planted"], metrics, rows[-1]["named"], file=sys.stderr)
    finally:
        quiet.end()
    found = {
        "command": "python -m benchmarks.lab.bottlenecks",
        "machine": msgspec.to_builtins(describe_machine({})),
        "rows": rows,
    }
    options.out.mkdir(parents=True, exist_ok=True)
    (options.out / "bottlenecks.json").write_text(json.dumps(found, indent=1) + "\n")
    page = _page(found)
    (options.out / "bottlenecks.md").write_text(page)
    print(page)


def _row(planted: str, metrics: str, duration_s: float) -> dict[str, Any]:
    flags: dict[str, object] = {"metrics": metrics}
    if planted != "none":
        flags["bottleneck"] = planted
    with running_mock(**flags) as mock:
        run = uvloop.run(_measure(mock.url, duration_s))
    explanation = explain(run)
    # Without a bottleneck something still takes most of the time; it must not be called a limit.
    named = explanation.bound if explanation.is_limit else "none"
    return {
        "planted": planted,
        "metrics": metrics,
        "named": named,
        "evidence": explanation.evidence,
        "unknown": explanation.unknown,
        "parts": msgspec.to_builtins(explanation.parts),
    }


async def _measure(url: str, duration_s: float) -> RunResult:
    session = await Session.open(SessionOptions(url=url))
    workload = Workload(
        arrivals=ClosedLoop(_USERS, duration_s=duration_s),
        content=Synthetic(input=Uniform(100, 300), output=Uniform(32, 96)),
    )
    return (await session.run(workload)).result


def _page(found: dict[str, Any]) -> str:
    machine, styles = found["machine"], ("both", "vllm", "steelyard")
    named = {(row["planted"], row["metrics"]): row["named"] for row in found["rows"]}
    lines = [f"| planted | {' | '.join(f'metrics: {s}' for s in styles)} |", "|---|---|---|---|"]
    for planted in _PLANTED:
        lines.append(f"| {planted} | {' | '.join(named[planted, s] for s in styles)} |")
    right = sum(row["planted"] == row["named"] for row in found["rows"])
    return (
        "\n".join(lines)
        + f"\n\nHardware: {machine['cpu_model']}, {machine['cpus']} cores; command: "
        f"`{found['command']}`; commit: `{machine['commit']}`. "
        f"{right} of {len(found['rows'])} named rightly.\n"
    )


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--duration", type=float, default=6.0, help="seconds of each run")
    parser.add_argument(
        "--quiet-file", type=Path, help="exists while it measures; others wait until it is gone"
    )
    parser.add_argument("--out", type=Path, default=_RESULTS)
    return parser.parse_args()


if __name__ == "__main__":
    main()
