"""How many requests met their target: goodput, and what may be said of it from so many requests.

Everything that was asked counts: a request that failed, was shed or was never answered is not good.
"""

import math

import msgspec
import numpy as np
import numpy.typing as npt

from steelyard.lab.outcomes import Outcome, RequestFlag
from steelyard.lab.records import Records
from steelyard.lab.stats.latencies import Window, request_latencies, worst_gaps_s
from steelyard.lab.stats.quantiles import Estimate

__all__ = ["Goodput", "Slo", "are_good", "goodput", "wilson"]

_Z = 1.959963984540054
"""97.5 % quantile of the normal distribution."""


class Slo(msgspec.Struct, frozen=True, kw_only=True):
    """What a request must keep to be good. None: no such limit."""

    ttft_ms: float | None = None
    """From the scheduled time."""
    itl_ms: float | None = None
    """For that percentile of the request's own gaps between tokens."""
    percentile: float = 99.0
    tpot_ms: float | None = None
    e2e_ms: float | None = None
    """From the scheduled time."""

    @property
    def is_empty(self) -> bool:
        limits = (self.ttft_ms, self.itl_ms, self.tpot_ms, self.e2e_ms)
        return all(limit is None for limit in limits)


class Goodput(msgspec.Struct, frozen=True, kw_only=True):
    """Of the requests that were scheduled in a window."""

    asked: int
    good: int
    share: Estimate
    """Wilson's interval."""
    per_s: Estimate
    """Good requests per second of the window."""


def goodput(records: Records, window: Window, slo: Slo) -> Goodput:
    """An empty `Slo` is met by every complete request."""
    asked_rows = np.flatnonzero(_were_asked(records, window))
    asked = len(asked_rows)
    good = int(np.sum(are_good(records, slo)[asked_rows]))
    share = wilson(good, asked)
    rate = asked / window.duration_s if window.duration_s > 0 else 0.0
    return Goodput(
        asked=asked,
        good=good,
        share=share,
        per_s=Estimate(
            share.value * rate,
            None if share.low is None else share.low * rate,
            None if share.high is None else share.high * rate,
        ),
    )


def are_good(records: Records, slo: Slo) -> npt.NDArray[np.bool_]:
    """(requests,) which ones are complete and met every limit."""
    whole = request_latencies(records, Window(-np.inf, np.inf))
    good = np.ones(len(whole.rows), dtype=bool)
    limits = (
        (slo.ttft_ms, whole.ttft_s),
        (slo.tpot_ms, whole.tpot_s),
        (slo.e2e_ms, whole.e2e_s),
    )
    for limit_ms, values_s in limits:
        if limit_ms is not None:
            good &= ~(values_s > limit_ms / 1000)  # NaN: nothing that could be late
    if slo.itl_ms is not None:
        good &= worst_gaps_s(records, whole.rows, slo.percentile / 100) <= slo.itl_ms / 1000
    result = np.zeros(len(records), dtype=bool)
    result[whole.rows] = good
    return result


def wilson(good: int, asked: int) -> Estimate:
    """A share with its interval (Wilson, "Probable inference, the law of succession, and
    statistical inference", 1927). No request at all gives a share of 0 without interval."""
    if asked == 0:
        return Estimate(0.0)
    share, spread = good / asked, _Z**2 / asked
    middle = (share + spread / 2) / (1 + spread)
    half = _Z / (1 + spread) * math.sqrt(share * (1 - share) / asked + spread / (4 * asked))
    # The interval of none or all ends at the share itself, which rounding must not cut off.
    low, high = min(max(middle - half, 0.0), share), max(min(middle + half, 1.0), share)
    return Estimate(share, low, high)


def _were_asked(records: Records, window: Window) -> npt.NDArray[np.bool_]:
    """Scheduled in the window. What the run's own end cut off was not asked to the end."""
    requests = records.requests
    asked: npt.NDArray[np.bool_] = window.holds(requests["scheduled_s"])
    asked &= requests["outcome"] != Outcome.ABANDONED
    return asked & ~records.flagged(RequestFlag.WARM_UP)
