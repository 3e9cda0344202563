"""What measuring costs: CPU time per token event, memory and report time for a million of them.

    python -m benchmarks.lab.client_cost
    python -m benchmarks.lab.client_cost --million --tools steelyard

Two runs of different lengths at 5,000 events/s; the difference of their CPU times divided by the
difference of their events leaves out what starting and reporting cost.
"""

import argparse
import json
import sys
from pathlib import Path

import msgspec
from benchmarks.engines.machine import describe_machine
from benchmarks.lab.peers import require_peer, require_tokenizer
from benchmarks.lab.scenarios import Scenario
from benchmarks.lab.tool_run import ToolRun, run_tool
from benchmarks.lab.tools import TOOLS, Tool

_ROOT = Path(__file__).parents[2]
_RATE, _TOKENS = 100, 50


def main() -> None:
    options = _options()
    tools = [tool for tool in TOOLS if tool.name in options.tools]
    require_tokenizer(options.peers_dir)
    for tool in tools:
        if tool.package is not None:
            require_peer(tool.package, options.peers_dir)
    measure = _million if options.million else _per_event
    rows = {tool.name: measure(tool, options.peers_dir) for tool in tools}
    facts = msgspec.to_builtins(describe_machine({}))
    results = {"machine": facts, "tools": rows}
    name = "million" if options.million else "client_cost"
    options.out.mkdir(parents=True, exist_ok=True)
    (options.out / f"{name}.json").write_text(json.dumps(results, indent=1) + "\n")
    page = page_of(facts, rows, is_million=options.million)
    (options.out / f"{name}.md").write_text(page)
    print(page)


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    peers = _ROOT / "build" / "benchmarks" / "lab-peers"
    names = [tool.name for tool in TOOLS]
    parser.add_argument("--peers-dir", type=Path, default=peers, help="of `accuracy`")
    parser.add_argument("--out", type=Path, default=Path(__file__).with_name("results"))
    parser.add_argument("--million", action="store_true", help="record a million token events")
    parser.add_argument("--tools", nargs="+", choices=names, default=names)
    options = parser.parse_args()
    options.peers_dir = options.peers_dir.absolute()
    return options


def _per_event(tool: Tool, peers: Path) -> dict[str, float]:
    short, long = (_run(tool, peers, seconds * _RATE) for seconds in (5, 20))
    events = long.truth.tokens - short.truth.tokens
    return {
        "CPU µs per token event": 1e6 * (long.cpu_s - short.cpu_s) / events,
        "events/s": long.truth.rate * _TOKENS,
        "CPU seconds of the short run": short.cpu_s,
        "peak MB": long.peak_bytes / 1e6,
    }


def _million(tool: Tool, peers: Path) -> dict[str, float]:
    scenario = Scenario(
        "million",
        {"ttft_ms": 200, "itl_ms": 20},
        rate=10,
        arrivals="poisson",
        requests=2000,
        output_tokens=500,
    )
    run = _succeeded(run_tool(tool, scenario, peers))
    return {
        "token events": run.truth.tokens,
        "peak MB": run.peak_bytes / 1e6,
        "seconds from the last token to the report": run.after_last_token_s,
        "CPU µs per token event, all included": 1e6 * run.cpu_s / run.truth.tokens,
    }


def _run(tool: Tool, peers: Path, requests: int) -> ToolRun:
    print(f"{tool.name}: {requests} requests …", file=sys.stderr, flush=True)
    scenario = Scenario(
        "cost",
        {"ttft_ms": 200, "itl_ms": 20},
        rate=_RATE,
        arrivals="constant",
        requests=requests,
        output_tokens=_TOKENS,
    )
    return _succeeded(run_tool(tool, scenario, peers))


def _succeeded(run: ToolRun) -> ToolRun:
    if run.failure:
        print(f"{run.tool}: {run.failure}; its costs are those of a failure", file=sys.stderr)
    return run


def page_of(
    facts: dict[str, object], rows: dict[str, dict[str, float]], *, is_million: bool
) -> str:
    """Markdown: the machine, the command, one row per tool."""
    command = f"python -m benchmarks.lab.client_cost{' --million' if is_million else ''}"
    titles = next(iter(rows.values())).keys()
    lines = [
        f"# {'A million token events' if is_million else 'Cost of a token event'}",
        "",
        f"{facts['cpus']} CPUs ({facts['cpu_model']}), {facts['memory_gib']} GiB, kernel "
        f"{facts['kernel']}, Python {facts['python']}; {facts['date']}, commit {facts['commit']}; "
        f"`{command}`.",
        "",
        f"| tool | {' | '.join(titles)} |",
        "|---" * (len(titles) + 1) + "|",
    ]
    for name, values in rows.items():
        lines.append(f"| {name} | {' | '.join(f'{v:,.1f}' for v in values.values())} |")
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    main()
