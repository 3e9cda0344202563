"""Load generators against known truth: errors of every reported percentile and of the rate.

    python -m benchmarks.lab.accuracy --share 0.1

Each tool is run once per scenario against a fresh mock on the same machine, one after the other.
Writes `accuracy.json` and `accuracy.md`, where what is not run now (`--scenarios`, `--tools`) keeps
its old results.
"""

import argparse
import dataclasses
import json
import sys
from collections.abc import Iterator
from importlib.metadata import version
from pathlib import Path

import msgspec
from benchmarks.engines.machine import describe_machine
from benchmarks.lab.peers import require_peer, require_tokenizer
from benchmarks.lab.scenarios import SCENARIOS
from benchmarks.lab.tool_run import ToolRun, run_tool
from benchmarks.lab.tools import TOOLS, Tool
from benchmarks.lab.truth_numbers import QUANTILES

_ROOT = Path(__file__).parents[2]
_METRICS = ("ttft", "tpot", "itl", "e2e", "e2e from schedule")


def main() -> None:
    options = _options()
    tools = [tool for tool in TOOLS if not options.tools or tool.name in options.tools]
    scenarios = [s for s in SCENARIOS if not options.scenarios or s.name in options.scenarios]
    require_tokenizer(options.peers_dir)
    for tool in tools:
        if tool.package is not None:
            require_peer(tool.package, options.peers_dir)
    found = _old_runs(options.out / "accuracy.json")
    for scenario in scenarios:
        for tool in tools:
            print(f"{scenario.name}: {tool.name} …", file=sys.stderr, flush=True)
            share = 1.0 if scenario.name == "omission" else options.share
            run = run_tool(tool, scenario.scaled(share), options.peers_dir)
            found[scenario.name, tool.name] = run
    order = ((scenario.name, tool.name) for scenario in SCENARIOS for tool in TOOLS)
    runs = [found[key] for key in order if key in found]
    facts = msgspec.to_builtins(describe_machine(_versions(tools)))
    options.out.mkdir(parents=True, exist_ok=True)
    results = {"machine": facts, "runs": [dataclasses.asdict(run) for run in runs]}
    (options.out / "accuracy.json").write_text(json.dumps(results, indent=1) + "\n")
    page = "\n".join(_page(facts, runs)) + "\n"
    (options.out / "accuracy.md").write_text(page)
    print(page)


def _old_runs(file: Path) -> dict[tuple[str, str], ToolRun]:
    if not file.exists():
        return {}
    runs = json.loads(file.read_text())["runs"]
    return {(run["scenario"], run["tool"]): msgspec.convert(run, ToolRun) for run in runs}


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument(
        "--peers-dir",
        type=Path,
        default=_ROOT / "build" / "benchmarks" / "lab-peers",
        help="where the other tools are installed (8 GB)",
    )
    parser.add_argument("--out", type=Path, default=Path(__file__).with_name("results"))
    parser.add_argument("--share", type=float, default=1.0, help="of each scenario's requests")
    parser.add_argument("--tools", nargs="+", choices=[tool.name for tool in TOOLS])
    parser.add_argument("--scenarios", nargs="+", choices=[s.name for s in SCENARIOS])
    options = parser.parse_args()
    options.peers_dir = options.peers_dir.absolute()
    return options


def _versions(tools: list[Tool]) -> dict[str, str]:
    peers = dict(t.package.split("==") for t in tools if t.package is not None)
    return {"steelyard": version("steelyard"), "uvloop": version("uvloop"), **peers}


def _page(facts: dict[str, object], runs: list[ToolRun]) -> Iterator[str]:
    """Markdown: the machine, one table per scenario, the commands."""
    yield "# Load generators against known truth\n"
    yield (
        f"{facts['cpus']} CPUs ({facts['cpu_model']}), {facts['memory_gib']} GiB, kernel "
        f"{facts['kernel']}, Python {facts['python']}; {facts['date']}, commit {facts['commit']}.\n"
    )
    yield (
        "Errors are the reported value minus the true one, in milliseconds and as a share; "
        "— is not reported; * the tool's request latency, because it reports none from the "
        "schedule. The rate that steelyard reports is that at which requests were due; under a cap "
        "they leave later.\n"
    )
    for name in dict.fromkeys(run.scenario for run in runs):
        of_scenario = [run for run in runs if run.scenario == name]
        yield from _table(name, of_scenario)
        yield from _smallest(of_scenario)
    yield "## Commands\n"
    for run in runs:
        yield f"- {run.scenario}: `{run.command}`"


def _table(scenario: str, runs: list[ToolRun]) -> Iterator[str]:
    yield f"## {scenario}\n"
    yield f"| error of | {' | '.join(run.tool for run in runs)} |"
    yield "|---" * (len(runs) + 1) + "|"
    for metric in _METRICS:
        for quantile in QUANTILES:
            cells = [_error(run, metric, quantile) for run in runs]
            if any(cell != "—" for cell in cells):
                yield f"| {metric} {quantile} | {' | '.join(cells)} |"
    facts = {
        "rate, reported / true": lambda r: f"{r.reported.rate:.2f} / {r.truth.rate:.2f}",
        "output tokens, reported / true": lambda r: (
            f"{r.reported.output_tokens:.0f} / {r.truth.tokens}"
        ),
    }
    for title, show in facts.items():
        yield f"| {title} | {' | '.join(show(r) if r.reported else '—' for r in runs)} |"
    measured = {
        "delivered rate (true), per second": lambda r: f"{r.truth.rate:.2f}",
        "variation of arrival gaps (true)": lambda r: f"{r.truth.arrival_cv:.2f}",
        "connections used": lambda r: str(r.truth.connections),
        "CPU seconds": lambda r: f"{r.cpu_s:.1f}",
        "peak memory, MB": lambda r: f"{r.peak_bytes / 1e6:.0f}",
        "notes": lambda r: "; ".join(r.reported.notes) if r.reported and r.reported.notes else "—",
        "seconds after the last token": lambda r: f"{r.after_last_token_s:.1f}",
        "mock's own timing error p99, ms": lambda r: f"{r.own_timing['p99_ms']:.2f}",
        "trouble": lambda r: r.failure or "—",
    }
    for title, show in measured.items():
        yield f"| {title} | {' | '.join(map(show, runs))} |"
    yield ""


def _smallest(runs: list[ToolRun]) -> Iterator[str]:
    """In how many rows our error is the smallest, and how large it is at most."""
    rows = [(metric, quantile) for metric in _METRICS for quantile in QUANTILES]
    ours = next((run for run in runs if run.tool == "steelyard"), None)
    if ours is None:
        return
    smallest, misses, worst = 0, [], (0.0, "")
    for metric, quantile in rows:
        errors = {run.tool: _error_ms(run, metric, quantile) for run in runs}
        own_ms = errors.pop("steelyard")
        if own_ms is None:
            continue
        true_ms = ours.truth.percentiles_ms[metric][quantile]
        worst = max(worst, (abs(own_ms) / true_ms, f"{metric} {quantile}: {own_ms:+.2f} ms"))
        better = [tool for tool, e in errors.items() if e is not None and abs(e) < abs(own_ms)]
        smallest += not better
        misses += [f"{metric} {quantile} ({', '.join(better)})"] if better else []
    yield (
        f"Our error is the smallest in {smallest} of {smallest + len(misses)} rows"
        + (f"; not in {', '.join(misses)}" if misses else "")
        + f". Our largest one, as a share: {worst[0]:.1%} ({worst[1]}).\n"
    )


def _error_ms(run: ToolRun, metric: str, quantile: str) -> float | None:
    """None: not reported."""
    if run.reported is None or metric not in run.truth.percentiles_ms:
        return None
    reported = run.reported.percentiles_ms.get(metric)
    if reported is None:
        return None
    return reported[quantile] - run.truth.percentiles_ms[metric][quantile]


def _error(run: ToolRun, metric: str, quantile: str) -> str:
    if run.reported is None or metric not in run.truth.percentiles_ms:
        return "—"
    reported, mark = run.reported.percentiles_ms, ""
    if metric == "e2e from schedule" and metric not in reported:
        reported, mark = {metric: reported["e2e"]}, " *"
    if metric not in reported:
        return "—"
    true_ms = run.truth.percentiles_ms[metric][quantile]
    error_ms = reported[metric][quantile] - true_ms
    return f"{error_ms:+.2f} ({100 * error_ms / true_ms:+.1f} %){mark}"


if __name__ == "__main__":
    main()
