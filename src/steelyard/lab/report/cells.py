"""Numbers as people read them."""

from steelyard.lab.stats import Estimate, Summary

__all__ = [
    "bytes_cell",
    "count_cell",
    "estimate_cell",
    "number_cell",
    "optional_cell",
    "percent_cell",
    "percentile_cell",
    "share_cell",
    "spoken",
]


def spoken(summary: Summary) -> str:
    p50, p99 = summary.percentiles["p50"], summary.percentiles["p99"]
    return f"{number_cell(p50.value)} ms (p50), {number_cell(p99.value)} ms (p99)"


def percentile_cell(summary: Summary | None, name: str) -> str:
    return "" if summary is None else number_cell(summary.percentiles[name].value)


def estimate_cell(estimate: Estimate) -> str:
    """Value and interval; no interval where it would say the same."""
    value = number_cell(estimate.value)
    if estimate.low is None and estimate.high is None:
        return value
    low = "…" if estimate.low is None else number_cell(estimate.low)
    high = "…" if estimate.high is None else number_cell(estimate.high)
    return value if low == value == high else f"{value} [{low}, {high}]"


def share_cell(estimate: Estimate) -> str:
    if estimate.low is None or estimate.high is None:
        return f"{estimate.value:.1%}"
    return f"{estimate.value:.1%} [{estimate.low:.1%}, {estimate.high:.1%}]"


def number_cell(value: float) -> str:
    """Three significant digits at least, none lost above."""
    if value == 0:
        return "0"
    size = abs(value)
    return f"{value:.0f}" if size >= 1000 else f"{value:.1f}" if size >= 100 else f"{value:.3g}"


def optional_cell(value: float | None) -> str:
    return "" if value is None else number_cell(value)


def count_cell(value: int | None) -> str:
    return "" if value is None else str(value)


def percent_cell(value: float | None) -> str:
    return "" if value is None else f"{value:.0%}"


def bytes_cell(value: int | None) -> str:
    if value is None:
        return ""
    return f"{value / 2**30:.2f} GiB" if value >= 2**30 else f"{value / 2**20:.0f} MiB"
