"""The report in Markdown: `python -m benchmarks.engines.report REPORT.md RESULTS.json …`.

Several results become one: the first is the comparison, the others are further rounds of some of
its scenarios. The merged results are written beside the report.
"""

import sys
from collections.abc import Iterator
from pathlib import Path

from benchmarks.engines import tables
from benchmarks.engines.reading import Reading
from benchmarks.engines.record import Results, load, merge, save
from benchmarks.engines.targets import judge

__all__ = ["write_report"]


def main() -> None:
    if len(sys.argv) < 3:
        sys.exit((__doc__ or "").partition("\n")[0])
    target, *sources = map(Path, sys.argv[1:])
    results = merge(*map(load, sources))
    save(results, target.with_suffix(".json"))
    write_report(results, target)


def write_report(results: Results, path: Path) -> None:
    """Everything that is in the results, as tables."""
    path.write_text("\n".join(_lines(Reading(results))) + "\n")


def _lines(reading: Reading) -> Iterator[str]:
    yield "# Engines compared"
    yield ""
    yield from tables.setting(reading)
    yield from _section("Targets")
    verdicts = [(v.what, v.wanted, v.reached, v.verdict) for v in judge(reading)]
    yield from tables.table(("what", "wanted", "reached", "verdict"), verdicts)
    yield from _section("Output tokens per second")
    yield "128 tokens in, 128 out; median over rounds [least, greatest]."
    yield ""
    yield from tables.throughput(reading)
    yield from _section("Batch, rate, latency, memory")
    yield from tables.batch_curve(reading)
    yield from _section("Latency")
    yield "Medians over rounds, in ms: TTFT p50 / p99; ITL p50 / p99."
    yield ""
    yield from tables.latency(reading)
    yield from _section("Prefill")
    yield from tables.prefill(reading)
    yield from _section("Share of the roofline")
    yield from tables.roofline(reading)
    yield from _section("Shared prefix of 1,400 of 1,500 tokens")
    yield from tables.prefix(reading)
    yield from _section("A 1,500-token prompt arrives while four streams run")
    yield from tables.arrival(reading)
    yield from _section("Memory and start")
    yield from tables.memory_and_start(reading)
    yield from _section("Greedy answers")
    yield from tables.answers(reading)
    yield from _section("How far to trust this")
    yield from tables.trust(reading)


def _section(title: str) -> Iterator[str]:
    yield ""
    yield f"## {title}"
    yield ""


if __name__ == "__main__":
    main()
