"""Did the requests leave as the process that was asked for says? Rate, distribution, independence.

Works in operational time u = Λ(t), where one request is expected per unit, so that ramps, stages
and bursts are tested like a steady rate.
"""

import math

import msgspec
import numpy as np
import numpy.typing as npt

from steelyard.lab.load import OpenLoop

__all__ = ["ArrivalTest", "open_loop_test", "replay_test"]

Floats = npt.NDArray[np.float64]

_CLOSE_SHARE = 0.02
"""Gaps below that part of the mean gap count as simultaneous."""


class ArrivalTest(msgspec.Struct, frozen=True, kw_only=True):
    """What was delivered, beside what was asked."""

    count: int
    asked_per_s: float
    """On average over the time in which requests were due."""
    delivered_per_s: float
    """Of those that left within that time."""
    ks_distance: float = 1.0
    """Largest difference between the asked and the delivered distribution of gaps. When the asked
    times are fixed: by how much of the whole duration a request was displaced at most."""
    ks_p: float | None = None
    """Probability of such a distance if all was well (Kolmogorov and Smirnov). None: the asked
    times are fixed, so chance has no part in it."""
    spread_p: float | None = None
    """The same for where in time requests lie, which a Poisson process spreads evenly. None: the
    process says nothing about it."""
    repetition: float = 0.0
    """Highest rank correlation of a gap with an earlier one."""
    repetition_lag: int = 0
    """How many gaps earlier."""
    repetition_p: float | None = None
    """Probability of such a correlation if gaps are independent, as asked. None: they are not
    asked to be."""
    simultaneous: float = 0.0
    """Share of gaps next to nothing."""
    simultaneous_p: float | None = None
    """Probability of so many if all was well."""


def open_loop_test(times_s: Floats, arrivals: OpenLoop, *, workers: int = 1) -> ArrivalTest:
    """`times_s`: when requests left, ascending, since the start of the run."""
    profile = arrivals.profile
    within = times_s[times_s < profile.duration_s]
    test = ArrivalTest(
        count=len(times_s),
        asked_per_s=profile.total / profile.duration_s,
        delivered_per_s=len(within) / profile.duration_s,
    )
    if len(within) < 2:
        return test
    operational = profile.expected_until(within)
    if arrivals.cv == 0:
        asked = np.arange(len(within)) * (profile.total / max(round(profile.total), 1))
        distance = float(np.max(np.abs(operational - asked))) / profile.total
        return msgspec.structs.replace(test, ks_distance=distance)
    return _with_chance(test, operational, arrivals.cv, profile.total, workers=workers)


def replay_test(times_s: Floats, asked_s: Floats, duration_s: float) -> ArrivalTest:
    """Against the times of a trace; both ascending."""
    within = times_s[times_s < duration_s]
    both = min(len(within), len(asked_s))
    displaced_s = np.max(np.abs(within[:both] - asked_s[:both]), initial=0.0)
    return ArrivalTest(
        count=len(times_s),
        asked_per_s=len(asked_s) / duration_s,
        delivered_per_s=len(within) / duration_s,
        ks_distance=float(displaced_s) / duration_s if both else 1.0,
    )


def _with_chance(
    test: ArrivalTest, operational: Floats, cv: float, total: float, *, workers: int
) -> ArrivalTest:
    from scipy import stats  # takes a second to load, and only those who judge need it

    gaps = np.diff(operational)
    asked = stats.gamma(cv**-2, scale=cv**2)
    ks = stats.kstest(gaps, asked.cdf)
    spread_p = None
    if cv == 1:
        spread_p = float(stats.kstest(operational / total, "uniform").pvalue)
    lag, correlation = _strongest_repetition(gaps, max(10, 2 * workers))
    close = int(np.sum(gaps < _CLOSE_SHARE))
    close_share = float(asked.cdf(_CLOSE_SHARE))
    return msgspec.structs.replace(
        test,
        ks_distance=float(ks.statistic),
        ks_p=float(ks.pvalue),
        spread_p=spread_p,
        repetition=correlation,
        repetition_lag=lag,
        repetition_p=_correlation_p(correlation, len(gaps), max(10, 2 * workers)),
        simultaneous=close / len(gaps),
        simultaneous_p=float(stats.binom.sf(close - 1, len(gaps), close_share)),
    )


def _strongest_repetition(gaps: Floats, lags: int) -> tuple[int, float]:
    """The lag with the highest rank correlation, and that."""
    from scipy import stats

    if not np.ptp(gaps):
        return 0, 0.0  # all alike: there is nothing to repeat
    ranks = stats.rankdata(gaps)
    found = [
        (float(np.corrcoef(ranks[:-lag], ranks[lag:])[0, 1]), lag)
        for lag in range(1, min(lags, len(gaps) // 3) + 1)
    ]
    correlation, lag = max((pair for pair in found if math.isfinite(pair[0])), default=(0.0, 0))
    return lag, correlation


def _correlation_p(correlation: float, count: int, lags: int) -> float:
    """One-sided, for the largest of so many correlations of independent values (Bonferroni)."""
    z = correlation * math.sqrt(max(count - 1, 1))
    return min(0.5 * math.erfc(z / math.sqrt(2)) * lags, 1.0)
