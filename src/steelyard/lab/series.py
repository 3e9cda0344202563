"""Results of several runs: curve, sweep, stress, repeats. Each has a schema of its own.

They are versioned like `result`, whose runs they contain. `bench` makes them, `report` writes them.
"""

from pathlib import Path
from typing import Any

import msgspec

from steelyard.contract.errors import InvalidRequest
from steelyard.lab.result import RunResult
from steelyard.lab.stats import Estimate, Goodput, Summary

__all__ = [
    "SERIES_SCHEMAS",
    "BatchLimit",
    "Curve",
    "CurvePoint",
    "Phase",
    "Repeats",
    "Series",
    "Stress",
    "Sweep",
    "SweepPoint",
    "read_series",
    "series_json_schema",
]


class CurvePoint(msgspec.Struct, frozen=True, kw_only=True):
    """A closed loop at one concurrency: a row of the table."""

    concurrency: int
    is_valid: bool
    output_tokens_per_s: float
    requests_per_s: float
    ttft_p50_ms: float | None
    ttft_p99_ms: float | None
    itl_p50_ms: float | None
    itl_p99_ms: float | None
    e2e_p50_ms: float | None
    e2e_p99_ms: float | None
    memory_bytes: int | None
    """Peak of the server's processes; of the devices where there are any. None: not readable."""
    power_watts: float | None = None


class BatchLimit(msgspec.Struct, frozen=True, kw_only=True):
    """How much smaller the batch must be for long prompts, at the same latency."""

    metric: str
    limit_ms: float
    short_concurrency: float | None
    """Where short prompts reach the limit, between measured points. None: they never do."""
    long_concurrency: float | None
    """The same for long ones. None: they never do. 0: already a single one is over it."""
    smaller_by: float | None
    """1 - long / short. None where one of them is not known."""


class Curve(
    msgspec.Struct, frozen=True, kw_only=True, tag_field="schema", tag="steelyard.bench.curve/1"
):
    """Throughput and latency over concurrency."""

    points: list[CurvePoint]
    knee: int | None
    """Concurrency from which more of it brings little. None: no bend within the range."""
    latency_choice: int | None
    """Highest concurrency whose p99 is close to the best one."""
    latency_slack: float
    """What `latency_choice` takes for close."""
    short_points: list[CurvePoint] = []
    long_points: list[CurvePoint] = []
    batch_limit: BatchLimit | None = None
    """None: long and short prompts were not measured apart."""
    runs: list[RunResult] = []


class SweepPoint(msgspec.Struct, frozen=True, kw_only=True):
    """An open loop at one rate."""

    rate: float
    is_valid: bool
    is_saturated: bool
    goodput: Goodput
    output_tokens_per_s: float
    ttft_p50_ms: float | None
    ttft_p99_ms: float | None
    itl_p99_ms: float | None
    shed_share: float


class Sweep(
    msgspec.Struct, frozen=True, kw_only=True, tag_field="schema", tag="steelyard.bench.sweep/1"
):
    """Goodput over the offered rate."""

    points: list[SweepPoint]
    """By rate."""
    attainment: float
    """Share of requests that must be good."""
    knee_rate: float | None
    """Highest measured rate at which that share is met. None: at none."""
    saturation_rate: float | None
    """Lowest measured rate at which the server fell behind. None: it never did."""
    runs: list[RunResult] = []


class Phase(msgspec.Struct, frozen=True, kw_only=True):
    """A part of a stress run; requests belong to the phase in which they were scheduled."""

    name: str
    begin_s: float
    end_s: float
    offered_per_s: float
    goodput: Goodput
    shed_share: float
    failed_share: float
    ttft_ms: Summary | None
    shed_ms: Summary | None
    """Time to be turned away."""


class Stress(
    msgspec.Struct, frozen=True, kw_only=True, tag_field="schema", tag="steelyard.bench.stress/1"
):
    """A burst over a known peak, and what comes after it."""

    peak_rate: float
    factor: float
    phases: list[Phase]
    """Before, burst, after."""
    goodput_ratio: Estimate
    """Good requests per second in the burst over those before it."""
    recovery_s: float | None
    """From the end of the burst until requests were good as often as before. None: not within the
    run."""
    runs: list[RunResult]


class Repeats(
    msgspec.Struct, frozen=True, kw_only=True, tag_field="schema", tag="steelyard.bench.repeats/1"
):
    """The same workload several times, each with other random numbers."""

    runs: list[RunResult]
    across: dict[str, dict[str, Estimate]]
    """Metric, then `mean` or percentile: the mean over runs, with Student's interval."""
    output_tokens_per_s: Estimate


Series = Curve | Sweep | Stress | Repeats

SERIES_SCHEMAS: dict[str, type[Series]] = {
    str(kind.__struct_config__.tag): kind for kind in (Curve, Sweep, Stress, Repeats)
}
"""By the value of their `schema` field."""


def read_series(path: Path) -> Series:
    """Raises `InvalidRequest` when the file holds none."""
    try:
        return msgspec.json.decode(path.read_bytes(), type=Series)
    except OSError as error:
        raise InvalidRequest(error.strerror or str(error), param=str(path)) from error
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise InvalidRequest(f"holds no series of runs: {error}", param=str(path)) from error


def series_json_schema() -> dict[str, Any]:
    """JSON Schema (2020-12) of all of them."""
    return msgspec.json.schema(Series)
