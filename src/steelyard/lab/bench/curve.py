"""Throughput, latency and memory over concurrency: the article's table, measured.

    concurrency → closed loop → tokens/s, P50, P99, memory

From the table follow the knee, the choice for those who need low latency, and how much smaller a
batch of long prompts must be.
"""

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import msgspec

from steelyard.lab.bench.knee import find_knee, reach
from steelyard.lab.bench.session import Session
from steelyard.lab.load import CacheState, ClosedLoop, Content, Lengths, Synthetic, Workload
from steelyard.lab.result import RunResult
from steelyard.lab.series import BatchLimit, Curve, CurvePoint
from steelyard.lab.stats import Slo

__all__ = ["CurveOptions", "batch_limit", "choose_for_latency", "curve_point", "measure_curve"]

_LIMIT_METRIC = "itl_ms"


@dataclass(frozen=True, slots=True, kw_only=True)
class CurveOptions:
    """What is measured at every concurrency."""

    concurrencies: tuple[int, ...] = (1, 2, 4, 8, 16)
    duration_s: float = 30.0
    """Of each point."""
    content: Content
    short: Lengths | None = None
    """Prompts of the second series, whose content must be synthetic. None: long and short are not
    measured apart."""
    long: Lengths | None = None
    cache: CacheState = CacheState.COLD
    context_tokens: int | None = None
    """As in a workload."""
    seed: int = 0
    slo: Slo | None = None
    """Its `itl_ms` is the limit at which batches are compared. None: the p99 at the knee of the
    short prompts is."""
    latency_slack: float = 0.25


async def measure_curve(session: Session, options: CurveOptions) -> Curve:
    """Every concurrency in turn; ends early, with what there is, when the session is stopped."""
    seeds = itertools.count(options.seed)
    runs = await _series(session, options, "mix", options.content, seeds)
    points = [curve_point(run) for run in runs]
    short: list[RunResult] = []
    long: list[RunResult] = []
    content = options.content
    if options.short is not None and options.long is not None and isinstance(content, Synthetic):
        short = await _series(
            session, options, "short", msgspec.structs.replace(content, input=options.short), seeds
        )
        long = await _series(
            session, options, "long", msgspec.structs.replace(content, input=options.long), seeds
        )
    short_points, long_points = ([curve_point(run) for run in part] for part in (short, long))
    knee = find_knee(
        [point.concurrency for point in points], [point.output_tokens_per_s for point in points]
    )
    return Curve(
        points=points,
        knee=None if knee is None else points[knee].concurrency,
        latency_choice=choose_for_latency(points, options.latency_slack),
        latency_slack=options.latency_slack,
        short_points=short_points,
        long_points=long_points,
        batch_limit=batch_limit(short_points, long_points, options.slo),
        runs=[*runs, *short, *long],
    )


def curve_point(run: RunResult) -> CurvePoint:
    """A row of the table."""
    arrivals = run.workload.arrivals
    assert isinstance(arrivals, ClosedLoop), "a curve is made of closed loops"
    hardware = run.hardware
    memory = hardware.gpu_memory_used_peak_bytes or hardware.server_memory_peak_bytes
    return CurvePoint(
        concurrency=arrivals.concurrency,
        is_valid=run.audit.is_valid,
        output_tokens_per_s=run.throughput.output_tokens_per_s,
        requests_per_s=run.throughput.complete_per_s,
        ttft_p50_ms=_value(run, "ttft_ms", 50),
        ttft_p99_ms=_value(run, "ttft_ms", 99),
        itl_p50_ms=_value(run, "itl_ms", 50),
        itl_p99_ms=_value(run, "itl_ms", 99),
        e2e_p50_ms=_value(run, "e2e_ms", 50),
        e2e_p99_ms=_value(run, "e2e_ms", 99),
        memory_bytes=memory,
        power_watts=hardware.gpu_power_mean_watts,
    )


def choose_for_latency(points: Sequence[CurvePoint], slack: float) -> int | None:
    """The highest concurrency up to which every p99 (end to end) is within `slack` of the best."""
    known = [(p.concurrency, p.e2e_p99_ms) for p in points if p.e2e_p99_ms is not None]
    if not known:
        return None
    limit = min(p99 for _, p99 in known) * (1 + slack)
    return max(concurrency for concurrency, p99 in known if p99 <= limit)


def batch_limit(
    short: Sequence[CurvePoint], long: Sequence[CurvePoint], slo: Slo | None
) -> BatchLimit | None:
    """At which concurrency each kind of prompt reaches the same p99 between tokens.

    None when one kind was not measured.
    """
    short_xs, short_ys = _gap_curve(short)
    long_xs, long_ys = _gap_curve(long)
    if not short_xs or not long_xs:
        return None
    limit_ms = None if slo is None else slo.itl_ms
    if limit_ms is None:
        knee = find_knee(short_xs, [point.output_tokens_per_s for point in short])
        limit_ms = short_ys[-1 if knee is None else knee]
    at_short, at_long = reach(short_xs, short_ys, limit_ms), reach(long_xs, long_ys, limit_ms)
    # A curve that ends at the limit has reached it there.
    if at_short is None and short_ys[-1] >= limit_ms:
        at_short = short_xs[-1]
    smaller_by = None
    if at_short and at_long is not None:
        smaller_by = 1 - at_long / at_short
    return BatchLimit(
        metric=f"{_LIMIT_METRIC} p99",
        limit_ms=limit_ms,
        short_concurrency=at_short,
        long_concurrency=at_long,
        smaller_by=smaller_by,
    )


async def _series(
    session: Session,
    options: CurveOptions,
    kind: str,
    content: Content,
    seeds: Iterator[int],
) -> list[RunResult]:
    runs: list[RunResult] = []
    for concurrency in options.concurrencies:
        if session.is_stopped:
            break
        name = f"{kind}, concurrency {concurrency}"
        workload = Workload(
            arrivals=ClosedLoop(concurrency, duration_s=options.duration_s),
            content=content,
            seed=next(seeds),
            cache=options.cache,
            context_tokens=options.context_tokens,
        )
        measured = await session.run(workload, slo=options.slo, name=name, keeps_requests=False)
        runs.append(measured.result)
    return runs


def _gap_curve(points: Sequence[CurvePoint]) -> tuple[list[float], list[float]]:
    known = [(float(p.concurrency), p.itl_p99_ms) for p in points if p.itl_p99_ms is not None]
    return [x for x, _ in known], [y for _, y in known]


def _value(run: RunResult, metric: str, percent: float) -> float | None:
    estimate = run.percentile(metric, percent)
    return None if estimate is None else estimate.value
