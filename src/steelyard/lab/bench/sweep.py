"""Goodput over the offered rate: raise it until the server falls behind, then look closer.

Rates grow by a constant factor until requests are good too seldom, or the server is saturated; the
gap between the last good and the first bad rate is then halved a few times.
"""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from steelyard.lab.bench.session import Session
from steelyard.lab.load import CacheState, Content, OpenLoop, Workload, steady
from steelyard.lab.result import RunResult
from steelyard.lab.series import Sweep, SweepPoint
from steelyard.lab.stats import Slo

__all__ = ["SweepOptions", "measure_sweep", "summarise_sweep", "sweep_point"]

_MOST_RUNS = 40


@dataclass(frozen=True, slots=True, kw_only=True)
class SweepOptions:
    """What is offered, and when it is enough."""

    content: Content
    slo: Slo
    rates: tuple[float, ...] = ()
    """Exactly these. Empty: found, from `first_rate` on."""
    first_rate: float = 0.5
    growth: float = 1.6
    halvings: int = 3
    """How often the gap between good and bad is halved."""
    attainment: float = 0.95
    duration_s: float = 30.0
    cv: float = 1.0
    cache: CacheState = CacheState.COLD
    context_tokens: int | None = None
    """As in a workload."""
    seed: int = 0


async def measure_sweep(session: Session, options: SweepOptions) -> Sweep:
    """Ends early, with what there is, when the session is stopped."""
    runs: dict[float, RunResult] = {}

    async def measure(rate: float) -> bool:
        """Whether the server kept up."""
        name = f"{rate:.3g} requests/s"
        workload = Workload(
            arrivals=OpenLoop(steady(rate, options.duration_s), options.cv),
            content=options.content,
            seed=options.seed + len(runs),
            cache=options.cache,
            context_tokens=options.context_tokens,
        )
        measured = await session.run(
            workload, slo=options.slo, name=name, sheds_on_purpose=True, keeps_requests=False
        )
        runs[rate] = measured.result
        return _keeps_up(sweep_point(measured.result), options.attainment)

    if options.rates:
        for rate in options.rates:
            if not session.is_stopped:
                await measure(rate)
    else:
        await _search(session, options, measure)
    return summarise_sweep(list(runs.values()), options.attainment)


def summarise_sweep(runs: list[RunResult], attainment: float) -> Sweep:
    """From the runs of all rates, in any order."""
    points = sorted((sweep_point(run) for run in runs), key=lambda point: point.rate)
    good = [point.rate for point in points if _keeps_up(point, attainment)]
    behind = [point.rate for point in points if point.is_saturated]
    return Sweep(
        points=points,
        attainment=attainment,
        knee_rate=max(good, default=None),
        saturation_rate=min(behind, default=None),
        runs=runs,
    )


def sweep_point(run: RunResult) -> SweepPoint:
    """A row of the table."""
    arrivals = run.workload.arrivals
    assert isinstance(arrivals, OpenLoop), "a sweep is made of open loops"
    ttft = run.latencies.get("ttft_ms")
    itl = run.latencies.get("itl_ms")
    return SweepPoint(
        rate=arrivals.profile.total / arrivals.profile.duration_s,
        is_valid=run.audit.is_valid,
        is_saturated=run.is_saturated,
        goodput=run.goodput,
        output_tokens_per_s=run.throughput.output_tokens_per_s,
        ttft_p50_ms=None if ttft is None else ttft.percentiles["p50"].value,
        ttft_p99_ms=None if ttft is None else ttft.percentiles["p99"].value,
        itl_p99_ms=None if itl is None else itl.percentiles["p99"].value,
        shed_share=run.counts.shed / max(run.counts.requests, 1),
    )


async def _search(
    session: Session, options: SweepOptions, measure: Callable[[float], Awaitable[bool]]
) -> None:
    """Grow, then halve."""
    good, bad, rate = 0.0, 0.0, options.first_rate
    for _ in range(_MOST_RUNS):
        if session.is_stopped:
            return
        if not await measure(rate):
            bad = rate
            break
        good, rate = rate, rate * options.growth
    for _ in range(options.halvings if bad else 0):
        if session.is_stopped:
            return
        middle = (good + bad) / 2
        if await measure(middle):
            good = middle
        else:
            bad = middle


def _keeps_up(point: SweepPoint, attainment: float) -> bool:
    return point.goodput.share.value >= attainment and not point.is_saturated
