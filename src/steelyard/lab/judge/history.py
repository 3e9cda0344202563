"""What the archive remembers, in tables and plots: how numbers moved, and what changed between.

The table is the change log: every row names the parts of the fingerprint in which a result differs
from the one before it.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from steelyard.lab.judge.archive import Entry
from steelyard.lab.judge.fingerprint import unlike_fields
from steelyard.lab.judge.stored_results import Result, runs_of
from steelyard.lab.report import Figure, Report, Table
from steelyard.lab.report.cells import optional_cell
from steelyard.lab.result import RunResult
from steelyard.lab.series import Curve

__all__ = ["Remembered", "history_figures", "history_report", "list_report"]

_HEADLINES = (("ttft_ms", "p50"), ("ttft_ms", "p99"), ("itl_ms", "p50"), ("itl_ms", "p99"))
# From old to new: light to dark, so that time shows without reading the legend.
_OLDEST, _NEWEST = (0xC6, 0xDB, 0xEF), (0x08, 0x30, 0x6B)


@dataclass(frozen=True, slots=True)
class Remembered:
    """An entry with its result."""

    entry: Entry
    result: Result

    @property
    def headline(self) -> RunResult:
        """The run that stands for the result: of a series the middle one."""
        runs = runs_of(self.result)
        return runs[len(runs) // 2]

    @property
    def day(self) -> str:
        return _when(self.entry)[:10]


def list_report(entries: Sequence[Entry]) -> Report:
    """What is there, newest last."""
    rows = tuple(
        (
            str(entry.id),
            _when(entry),
            entry.kind,
            entry.name,
            entry.fingerprint.digest,
            entry.fingerprint.model,
            ", ".join(entry.sets),
            "" if entry.is_valid else "INVALID",
            entry.note,
        )
        for entry in entries
    )
    columns = ("id", "begun (UTC)", "kind", "name", "fingerprint", "model", "sets", "audit", "note")
    return Report(
        title="Archive",
        verdict=f"{len(entries)} results",
        is_valid=True,
        reasons=(),
        findings=(),
        tables=(Table("Results", columns, rows, is_main=True),),
    )


def history_report(remembered: Sequence[Remembered]) -> Report:
    """Oldest first."""
    rows = []
    for at, one in enumerate(remembered):
        run = one.headline
        rows.append(
            (
                str(one.entry.id),
                _when(one.entry),
                one.entry.name,
                *(_percentile(run, metric, name) for metric, name in _HEADLINES),
                optional_cell(run.throughput.output_tokens_per_s),
                "" if one.entry.is_valid else "INVALID",
                _changes(remembered, at),
            )
        )
    headers = (f"{metric.removesuffix('_ms').upper()} {name}" for metric, name in _HEADLINES)
    columns = ("id", "begun (UTC)", "name", *headers, "tokens/s", "audit", "what changed")
    invalid = sum(not one.entry.is_valid for one in remembered)
    return Report(
        title=f"History of {len(remembered)} results",
        verdict=f"{invalid} of them INVALID" if invalid else "all valid",
        is_valid=not invalid,
        reasons=(),
        findings=(),
        tables=(Table("Results", columns, tuple(rows), "Milliseconds.", is_main=True),),
    )


def history_figures(remembered: Sequence[Remembered]) -> list[Figure]:
    """Numbers over time, then the curves of all results over each other."""
    figures = [
        _over_time("Time to first token", "ttft_ms", remembered),
        _over_time("Time between tokens", "itl_ms", remembered),
        _percentile_overlay(remembered),
    ]
    curves = [one for one in remembered if isinstance(one.result, Curve)]
    if curves:
        figures += [
            _curve_overlay(
                curves, "Throughput over concurrency", "output_tokens_per_s", "tokens/s"
            ),
            _curve_overlay(curves, "End to end (P99) over concurrency", "e2e_p99_ms", "ms"),
            _curve_overlay(curves, "Between tokens (P99) over concurrency", "itl_p99_ms", "ms"),
        ]
    return [figure for figure in figures if figure.traces]


def _over_time(title: str, metric: str, remembered: Sequence[Remembered]) -> Figure:
    traces = []
    for name, dash in (("p50", "solid"), ("p99", "dot")):
        known = [
            (one, one.headline.latencies[metric].percentiles[name])
            for one in remembered
            if metric in one.headline.latencies
        ]
        if not known:
            continue
        values = [estimate.value for _, estimate in known]
        traces.append(
            {
                "type": "scatter",
                "mode": "lines+markers",
                "name": name,
                "x": [_when(one.entry) for one, _ in known],
                "y": values,
                "text": [_label(one) for one, _ in known],
                "line": {"color": "#0072b2", "dash": dash},
                "error_y": {
                    "type": "data",
                    "symmetric": False,
                    "array": [(e.high or e.value) - e.value for _, e in known],
                    "arrayminus": [e.value - (e.low or e.value) for _, e in known],
                    "thickness": 1,
                },
            }
        )
    return Figure(title, traces, _layout("begun (UTC)", "ms"), "Bars: 95 % intervals of each run.")


def _percentile_overlay(remembered: Sequence[Remembered]) -> Figure:
    traces = []
    for at, one in enumerate(remembered):
        summary = one.headline.latencies.get("e2e_ms")
        if summary is None:
            continue
        traces.append(
            _overlaid(
                one,
                at / max(len(remembered) - 1, 1),
                list(summary.percentiles),
                [estimate.value for estimate in summary.percentiles.values()],
            )
        )
    layout = _layout("percentile of requests", "ms", is_category=True)
    return Figure("End to end, all results", traces, layout, "Darker: newer.")


def _curve_overlay(curves: Sequence[Remembered], title: str, attribute: str, unit: str) -> Figure:
    traces = []
    for at, one in enumerate(curves):
        assert isinstance(one.result, Curve)
        points = one.result.points
        traces.append(
            _overlaid(
                one,
                at / max(len(curves) - 1, 1),
                [point.concurrency for point in points],
                [getattr(point, attribute) for point in points],
            )
        )
    return Figure(title, traces, _layout("concurrency", unit), "Darker: newer.")


def _overlaid(one: Remembered, age: float, xs: list[Any], ys: list[Any]) -> dict[str, Any]:
    mixed = (round(old + age * (new - old)) for old, new in zip(_OLDEST, _NEWEST, strict=True))
    return {
        "type": "scatter",
        "mode": "lines+markers",
        "name": _label(one),
        "x": xs,
        "y": ys,
        "line": {"color": "#" + "".join(f"{part:02x}" for part in mixed)},
    }


def _layout(x: str, y: str, *, is_category: bool = False) -> dict[str, Any]:
    xaxis: dict[str, Any] = {"title": {"text": x}}
    if is_category:
        xaxis["type"] = "category"
    return {"xaxis": xaxis, "yaxis": {"title": {"text": y}, "rangemode": "tozero"}}


def _changes(remembered: Sequence[Remembered], at: int) -> str:
    own = remembered[at].entry
    note = [own.note] if own.note else []
    if at == 0:
        return "; ".join(note)
    unlike = unlike_fields(remembered[at - 1].entry.fingerprint, own.fingerprint)
    return "; ".join([*(str(one) for one in unlike), *note])


def _percentile(run: RunResult, metric: str, name: str) -> str:
    summary = run.latencies.get(metric)
    return "" if summary is None else optional_cell(summary.percentiles[name].value)


def _label(one: Remembered) -> str:
    return f"{one.entry.id} {one.entry.name or one.entry.kind} {one.day}"


def _when(entry: Entry) -> str:
    return datetime.fromtimestamp(entry.started_unix_s, UTC).strftime("%Y-%m-%d %H:%M")
