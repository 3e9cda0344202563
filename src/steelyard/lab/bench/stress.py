"""Three times the daily peak: what is still served well, how fast the rest is turned away, and how
long the server needs to recover.

One run of three phases: the peak, a burst over it, the peak again. Requests belong to the phase in
which they were scheduled.
"""

import math
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

from steelyard.lab.bench.session import Measured, Session
from steelyard.lab.load import (
    AzureTrace,
    CacheState,
    Content,
    MooncakeTrace,
    OpenLoop,
    Workload,
    burst,
)
from steelyard.lab.load.traces import read_azure, read_mooncake
from steelyard.lab.outcomes import Outcome
from steelyard.lab.records import Records
from steelyard.lab.result import RunResult
from steelyard.lab.series import Phase, Stress
from steelyard.lab.stats import (
    Estimate,
    Slo,
    Window,
    are_good,
    goodput,
    request_latencies,
    summarise,
)

__all__ = ["StressOptions", "measure_stress", "peak_of_run", "peak_of_trace", "recovery_time_s"]

_PEAK_MINUTE_S = 60.0
_RECOVERED = 0.95
"""Of the share of good requests before the burst."""
_LOOK_S = 2.0
"""Over so long a time that share is taken."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StressOptions:
    """The burst."""

    content: Content
    slo: Slo
    peak_rate: float
    """Requests per second of the daily peak."""
    factor: float = 3.0
    before_s: float = 30.0
    burst_s: float = 30.0
    after_s: float = 60.0
    cv: float = 1.0
    cache: CacheState = CacheState.COLD
    context_tokens: int | None = None
    """As in a workload."""
    seed: int = 0


async def measure_stress(session: Session, options: StressOptions) -> Stress:
    """Run the burst and compare its phases."""
    profile = burst(
        options.peak_rate,
        factor=options.factor,
        before_s=options.before_s,
        burst_s=options.burst_s,
        after_s=options.after_s,
    )
    workload = Workload(
        arrivals=OpenLoop(profile, options.cv),
        content=options.content,
        seed=options.seed,
        cache=options.cache,
        context_tokens=options.context_tokens,
    )
    measured = await session.run(
        workload,
        slo=options.slo,
        name=f"{options.factor:g} times the peak",
        warm_up_s=0.0,
        sheds_on_purpose=True,
    )
    return summarise_stress(measured, options)


def summarise_stress(measured: Measured, options: StressOptions) -> Stress:
    """From the records of the whole run."""
    records = measured.records
    burst_begin_s = options.before_s
    burst_end_s = burst_begin_s + options.burst_s
    end_s = burst_end_s + options.after_s
    # The first requests find an empty server; the second half of the phase is the peak's.
    before = Window(options.before_s / 2, burst_begin_s)
    during, after = Window(burst_begin_s, burst_end_s), Window(burst_end_s, end_s)
    named = (("before", before), ("burst", during), ("after", after))
    phases = [_phase(records, name, window, options.slo) for name, window in named]
    return Stress(
        peak_rate=options.peak_rate,
        factor=options.factor,
        phases=phases,
        goodput_ratio=_ratio(phases[1], phases[0]),
        recovery_s=recovery_time_s(records, options.slo, before, after),
        runs=[measured.result],
    )


def recovery_time_s(records: Records, slo: Slo, before: Window, after: Window) -> float | None:
    """From the start of `after` until requests are good as often as in `before`, and stay so.

    None when they never are.
    """
    usual = goodput(records, before, slo).share.value
    requests = records.requests
    inside = after.holds(requests["scheduled_s"]) & (requests["outcome"] != Outcome.ABANDONED)
    scheduled_s = requests["scheduled_s"][inside]
    good = are_good(records, slo)[inside].astype(np.float64)
    if not len(good) or usual == 0:
        return None
    shares = _share_from(scheduled_s, good)
    low = np.flatnonzero(shares < _RECOVERED * usual)
    if not len(low):
        return 0.0
    if low[-1] + 1 >= len(scheduled_s) or scheduled_s[-1] - scheduled_s[low[-1]] < _LOOK_S:
        return None
    return float(scheduled_s[low[-1] + 1] - after.begin_s)


def peak_of_run(run: RunResult) -> float:
    """Requests per second that a stored run completed: the rate to take for the daily peak."""
    return run.throughput.complete_per_s


def peak_of_trace(content: AzureTrace | MooncakeTrace) -> float:
    """Requests per second in the busiest minute."""
    read = read_azure if isinstance(content, AzureTrace) else read_mooncake
    times_s = read(Path(content.path)).times_s
    ends = np.searchsorted(times_s, times_s + _PEAK_MINUTE_S)
    most = int(np.max(ends - np.arange(len(times_s))))
    return most / min(_PEAK_MINUTE_S, max(float(times_s[-1]), 1.0))


def _phase(records: Records, name: str, window: Window, slo: Slo) -> Phase:
    requests = records.requests[window.holds(records.requests["scheduled_s"])]
    outcomes = requests["outcome"]
    asked = max(int(np.sum(outcomes != Outcome.ABANDONED)), 1)
    shed = outcomes == Outcome.SHED
    is_failed = ~shed & (outcomes != Outcome.COMPLETE) & (outcomes != Outcome.ABANDONED)
    return Phase(
        name=name,
        begin_s=window.begin_s,
        end_s=window.end_s,
        offered_per_s=len(requests) / window.duration_s,
        goodput=goodput(records, window, slo),
        shed_share=int(np.sum(shed)) / asked,
        failed_share=int(np.sum(is_failed)) / asked,
        ttft_ms=summarise(request_latencies(records, window).ttft_s * 1e3),
        shed_ms=summarise((requests["end_s"] - requests["sent_s"])[shed] * 1e3),
    )


def _ratio(burst_phase: Phase, before: Phase) -> Estimate:
    """Of two rates of counted events, with the interval of the logarithm (delta method)."""
    good, usual = burst_phase.goodput, before.goodput
    if not usual.good or not good.good:
        return Estimate(0.0)
    ratio = good.per_s.value / usual.per_s.value
    spread = math.exp(1.96 * math.sqrt(1 / good.good + 1 / usual.good))
    return Estimate(ratio, ratio / spread, ratio * spread)


def _share_from(
    scheduled_s: npt.NDArray[np.float64], good: npt.NDArray[np.float64]
) -> npt.NDArray[np.float64]:
    """For each request, the share of good ones among it and those of the next moments."""
    ends = np.searchsorted(scheduled_s, scheduled_s + _LOOK_S)
    sums = np.concatenate(([0.0], np.cumsum(good)))
    starts = np.arange(len(good))
    shares: npt.NDArray[np.float64] = (sums[ends] - sums[starts]) / np.maximum(ends - starts, 1)
    return shares
