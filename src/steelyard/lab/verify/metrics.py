"""Reads Prometheus' text format, and knows what the engines call the metrics that checks need."""

import re
from dataclasses import dataclass

__all__ = ["PRODUCED_COUNTERS", "RUNNING_GAUGES", "Metrics", "read_metrics"]

RUNNING_GAUGES = (
    "steelyard_engine_running",
    "vllm:num_requests_running",
    "sglang:num_running_reqs",
    "llamacpp:requests_processing",
)
"""Requests that an engine works on, by product."""

PRODUCED_COUNTERS = (
    "steelyard_output_tokens_total",
    "vllm:generation_tokens_total",
    "sglang:generation_tokens_total",
    "llamacpp:tokens_predicted_total",
)
"""Tokens produced so far, by product."""

_SAMPLE = re.compile(
    r"([a-zA-Z_:][a-zA-Z0-9_:]*)"
    r'(\{(?:[a-zA-Z_][a-zA-Z0-9_]*="(?:[^"\\\n]|\\["\\n])*",?)*\})?'
    r"\s+(\S+)(?:\s+-?\d+)?"
)


@dataclass(frozen=True, slots=True)
class Metrics:
    """What a scrape said."""

    values: dict[str, float]
    """By name, summed over labels."""
    faults: tuple[str, ...]
    """Lines that Prometheus would refuse."""


def read_metrics(text: str) -> Metrics:
    """Read a scrape; lines that are no samples become faults."""
    values: dict[str, float] = {}
    faults: list[str] = []
    seen: set[str] = set()
    for line in text.splitlines():
        if not line.strip() or line.startswith("#"):
            continue
        sample = _SAMPLE.fullmatch(line.strip())
        number = _number(sample[3]) if sample else None
        if sample is None or number is None:
            faults.append(f"no sample: {line[:100]!r}")
            continue
        series = sample[1] + (sample[2] or "")
        if series in seen:
            faults.append(f"given twice: {series[:100]}")
        seen.add(series)
        values[sample[1]] = values.get(sample[1], 0.0) + number
    return Metrics(values, tuple(faults))


def _number(text: str) -> float | None:
    try:
        return float(text)
    except ValueError:
        return None
