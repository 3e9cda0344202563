"""Plots of results, as the plain data that plotly.js draws. Pure; `html` puts them on a page."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeVar

from steelyard.lab.result import RunResult
from steelyard.lab.series import Curve, CurvePoint, Repeats, Stress, Sweep

__all__ = ["Figure", "figures_of"]

_NumberT = TypeVar("_NumberT", int, float)

_MOST_POINTS = 20_000
"""Of a scatter plot; more are thinned out evenly."""
_EVENTS_PER_BIN = 20
_FEWEST_BINS = 25

# Distinguishable for colour-blind people (Okabe and Ito, "Color universal design", 2008).
_BLUE, _ORANGE, _GREEN, _RED, _PURPLE = "#0072b2", "#e69f00", "#009e73", "#d55e00", "#cc79a7"


@dataclass(frozen=True, slots=True)
class Figure:
    """What `Plotly.newPlot` takes."""

    title: str
    traces: list[dict[str, Any]]
    layout: dict[str, Any]
    note: str = ""


def figures_of(result: RunResult | Curve | Sweep | Stress | Repeats) -> list[Figure]:
    """All plots of a result, most important first."""
    match result:
        case RunResult():
            return _run_figures(result)
        case Curve():
            return _curve_figures(result)
        case Sweep():
            return _sweep_figures(result)
        case Stress():
            return _stress_figures(result)
        case Repeats():
            return _repeats_figures(result)


def _run_figures(run: RunResult) -> list[Figure]:
    figures = [_first_tokens(run), _load(run), _tokens(run), _gaps(run), _percentile_curves(run)]
    return [figure for figure in figures if figure.traces]


def _first_tokens(run: RunResult) -> Figure:
    """Time to first token of every request, over time."""
    table = run.requests
    traces: list[dict[str, Any]] = []
    if table is not None:
        known = [
            (at, ttft)
            for at, ttft in zip(table.scheduled_s, table.ttft_ms, strict=True)
            if ttft is not None
        ]
        step = max(len(known) // _MOST_POINTS, 1)
        shown = known[::step]
        traces.append(_dots("request", [at for at, _ in shown], [ttft for _, ttft in shown], _BLUE))
    else:
        times = _bin_middles(run)
        for name, values, colour in (
            ("median", run.timeline.ttft_p50_s, _BLUE),
            ("slowest", run.timeline.ttft_max_s, _RED),
        ):
            ms = [None if value is None else value * 1e3 for value in values]
            traces.append(_line(name, times, ms, colour, gaps=True))
    layout = _axes("scheduled at (s)", "time to first token (ms)")
    layout |= {"shapes": [_window_shape(run)]}
    return Figure("Time to first token", traces, layout, "The measured window is shaded.")


def _load(run: RunResult) -> Figure:
    """Requests per second and in flight."""
    line, times = run.timeline, _bin_middles(run)

    # Rates of rare events need wide bins: few of them in each would only show chance.
    merged = max(math.ceil(_EVENTS_PER_BIN * len(times) / max(sum(line.scheduled), 1)), 1)
    merged = min(merged, max(len(times) // _FEWEST_BINS, 1))
    wide_times = [sum(part) / len(part) for part in _parts(times, merged)]

    def per_second(counts: Sequence[int]) -> list[float]:
        return [sum(part) / (len(part) * line.bin_s) for part in _parts(counts, merged)]

    traces = [
        _line("offered/s", wide_times, per_second(line.scheduled), _BLUE),
        _line("completed/s", wide_times, per_second(line.complete), _GREEN),
        _line("in flight", times, line.in_flight, _ORANGE) | {"yaxis": "y2"},
        _line("in flight or waiting", times, line.in_system, _PURPLE)
        | {"yaxis": "y2", "line": {"color": _PURPLE, "dash": "dot", "width": 1.5}},
    ]
    for name, counts in (("shed/s", line.shed), ("failed/s", line.failed)):
        if any(counts):
            traces.append(_line(name, wide_times, per_second(counts), _RED))
    layout = _axes("time (s)", "requests/s")
    layout |= {
        "shapes": [_window_shape(run)],
        "yaxis2": {
            "title": {"text": "requests"},
            "overlaying": "y",
            "side": "right",
            "rangemode": "tozero",
            "showgrid": False,
        },
    }
    return Figure("Load", traces, layout)


def _tokens(run: RunResult) -> Figure:
    line = run.timeline
    rates = [count / line.bin_s for count in line.output_tokens]
    layout = _axes("time (s)", "tokens/s") | {"shapes": [_window_shape(run)]}
    return Figure("Output tokens", [_line("tokens/s", _bin_middles(run), rates, _GREEN)], layout)


def _gaps(run: RunResult) -> Figure:
    """Histogram of the time between tokens."""
    bounds = list(run.gap_histogram)
    trace = {
        "type": "bar",
        "x": bounds,
        "y": list(run.gap_histogram.values()),
        "marker": {"color": _BLUE},
        "name": "gaps",
    }
    layout = _axes("up to (ms)", "gaps")
    layout["xaxis"] |= {"type": "category"}
    layout["yaxis"] |= {"type": "log"}
    return Figure("Time between tokens", [trace] if bounds else [], layout)


def _percentile_curves(run: RunResult) -> Figure:
    """Every latency at every percentile, with its interval."""
    traces = []
    colours = {"ttft_ms": _BLUE, "itl_ms": _GREEN, "tpot_ms": _ORANGE, "e2e_ms": _PURPLE}
    for metric, colour in colours.items():
        summary = run.latencies.get(metric)
        if summary is None:
            continue
        estimates = list(summary.percentiles.values())
        trace = _line(metric, list(summary.percentiles), [e.value for e in estimates], colour)
        trace["mode"] = "lines+markers"
        trace["error_y"] = {
            "type": "data",
            "symmetric": False,
            "array": [(e.high or e.value) - e.value for e in estimates],
            "arrayminus": [e.value - (e.low or e.value) for e in estimates],
        }
        traces.append(trace)
    layout = _axes("percentile", "ms")
    layout["xaxis"] |= {"type": "category"}
    layout["yaxis"] |= {"type": "log"}
    return Figure("Percentiles", traces, layout)


def _curve_figures(curve: Curve) -> list[Figure]:
    xs = [point.concurrency for point in curve.points]
    throughput = _line("tokens/s", xs, [p.output_tokens_per_s for p in curve.points], _GREEN)
    throughput["mode"] = "lines+markers"
    layout = _axes("concurrency", "output tokens/s")
    notes: dict[int, list[str]] = {}
    for place, text in ((curve.knee, "knee"), (curve.latency_choice, "for low latency")):
        if place is not None:
            notes.setdefault(place, []).append(text)
    layout["annotations"] = [
        _note(place, _throughput_at(curve.points, place), ", ".join(texts))
        for place, texts in notes.items()
    ]
    figures = [
        Figure("Throughput", [throughput], layout),
        Figure(
            "Latency, end to end",
            _percentile_lines(curve.points, "e2e"),
            _axes("concurrency", "ms"),
        ),
        Figure(
            "Time to first token",
            _percentile_lines(curve.points, "ttft"),
            _axes("concurrency", "ms"),
        ),
        Figure(
            "Time between tokens",
            _percentile_lines(curve.points, "itl"),
            _axes("concurrency", "ms"),
        ),
    ]
    if any(point.memory_bytes for point in curve.points):
        mib = [None if p.memory_bytes is None else p.memory_bytes / 2**20 for p in curve.points]
        memory = _line("memory", xs, mib, _ORANGE) | {"mode": "lines+markers"}
        figures.append(Figure("Memory of the server", [memory], _axes("concurrency", "MiB")))
    if curve.batch_limit is not None:
        figures.append(_long_and_short(curve, curve.batch_limit.limit_ms))
    return figures


def _long_and_short(curve: Curve, limit_ms: float) -> Figure:
    traces = []
    for name, points, colour in (
        ("short prompts", curve.short_points, _BLUE),
        ("long prompts", curve.long_points, _RED),
    ):
        xs = [point.concurrency for point in points]
        trace = _line(name, xs, [point.itl_p99_ms for point in points], colour)
        traces.append(trace | {"mode": "lines+markers"})
    layout = _axes("concurrency", "p99 between tokens (ms)")
    layout["shapes"] = [
        {
            "type": "line",
            "xref": "paper",
            "x0": 0,
            "x1": 1,
            "y0": limit_ms,
            "y1": limit_ms,
            "line": {"dash": "dot", "width": 1, "color": "#888888"},
        }
    ]
    return Figure("Long and short prompts", traces, layout, "Dotted: the limit both must keep.")


def _sweep_figures(sweep: Sweep) -> list[Figure]:
    rates = [point.rate for point in sweep.points]
    good = [point.goodput.per_s for point in sweep.points]
    goodput = _line("good requests/s", rates, [e.value for e in good], _GREEN)
    goodput["mode"] = "lines+markers"
    goodput["error_y"] = {
        "type": "data",
        "symmetric": False,
        "array": [(e.high or e.value) - e.value for e in good],
        "arrayminus": [e.value - (e.low or 0.0) for e in good],
    }
    offered = _line("offered", rates, rates, "#888888")
    offered["line"] |= {"dash": "dot"}
    latency = [
        _line(name, rates, values, colour) | {"mode": "lines+markers"}
        for name, values, colour in (
            ("TTFT p50", [point.ttft_p50_ms for point in sweep.points], _BLUE),
            ("TTFT p99", [point.ttft_p99_ms for point in sweep.points], _RED),
            ("ITL p99", [point.itl_p99_ms for point in sweep.points], _ORANGE),
        )
    ]
    layout = _axes("offered requests/s", "ms")
    layout["yaxis"] |= {"type": "log"}
    return [
        Figure("Goodput", [goodput, offered], _axes("offered requests/s", "good requests/s")),
        Figure("Latency", latency, layout),
    ]


def _stress_figures(stress: Stress) -> list[Figure]:
    figures = [figure for run in stress.runs for figure in _run_figures(run)]
    burst = stress.phases[1]
    shape = {
        "type": "rect",
        "xref": "x",
        "yref": "paper",
        "x0": burst.begin_s,
        "x1": burst.end_s,
        "y0": 0,
        "y1": 1,
        "fillcolor": _RED,
        "opacity": 0.12,
        "line": {"width": 0},
    }
    over_time = [
        replace(figure, layout=figure.layout | {"shapes": [shape]}, note="The burst is shaded.")
        for figure in figures[:3]
    ]
    return over_time + figures[3:]


def _repeats_figures(repeats: Repeats) -> list[Figure]:
    numbers = [str(number) for number in range(1, len(repeats.runs) + 1)]
    figures = []
    for metric in ("ttft_ms", "itl_ms", "e2e_ms"):
        traces = []
        for name, colour in (("p50", _BLUE), ("p99", _RED)):
            values = [
                run.latencies[metric].percentiles[name].value
                for run in repeats.runs
                if metric in run.latencies
            ]
            traces.append(_line(name, numbers, values, colour) | {"mode": "lines+markers"})
        figures.append(Figure(metric, traces, _axes("run", "ms")))
    return figures


def _percentile_lines(points: Sequence[CurvePoint], metric: str) -> list[dict[str, Any]]:
    xs = [point.concurrency for point in points]
    return [
        _line(name.upper(), xs, [getattr(p, f"{metric}_{name}_ms") for p in points], colour)
        | {"mode": "lines+markers"}
        for name, colour in (("p50", _BLUE), ("p99", _RED))
    ]


def _throughput_at(points: Sequence[CurvePoint], concurrency: int) -> float:
    return next(p.output_tokens_per_s for p in points if p.concurrency == concurrency)


def _parts(values: Sequence[_NumberT], size: int) -> list[Sequence[_NumberT]]:
    """Neighbours, `size` at a time; the last part may be shorter."""
    return [values[at : at + size] for at in range(0, len(values), size)]


def _bin_middles(run: RunResult) -> list[float]:
    width = run.timeline.bin_s
    return [round((number + 0.5) * width, 4) for number in range(len(run.timeline.scheduled))]


def _line(
    name: str, xs: Sequence[Any], ys: Sequence[Any], colour: str, *, gaps: bool = False
) -> dict[str, Any]:
    """`gaps`: draw over places without a value."""
    return {
        "type": "scatter",
        "mode": "lines",
        "name": name,
        "x": list(xs),
        "y": list(ys),
        "connectgaps": gaps,
        "line": {"color": colour, "width": 2},
    }


def _dots(name: str, xs: Sequence[float], ys: Sequence[float], colour: str) -> dict[str, Any]:
    return {
        "type": "scattergl",
        "mode": "markers",
        "name": name,
        "x": list(xs),
        "y": list(ys),
        "marker": {"color": colour, "size": 4, "opacity": 0.6},
    }


def _axes(x: str, y: str) -> dict[str, Any]:
    return {"xaxis": {"title": {"text": x}}, "yaxis": {"title": {"text": y}, "rangemode": "tozero"}}


def _note(x: float, y: float, text: str) -> dict[str, Any]:
    return {"x": x, "y": y, "text": text, "showarrow": True, "ax": 0, "ay": -34}


def _window_shape(run: RunResult) -> dict[str, Any]:
    return {
        "type": "rect",
        "xref": "x",
        "yref": "paper",
        "x0": run.window.begin_s,
        "x1": run.window.end_s,
        "y0": 0,
        "y1": 1,
        "fillcolor": _GREEN,
        "opacity": 0.07,
        "line": {"width": 0},
    }
