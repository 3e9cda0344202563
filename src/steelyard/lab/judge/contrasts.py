"""Statistics of a difference: how much larger is B than A, and how sure is that?

Everything is done on logarithms, so a difference is a factor, and equal factors up and down are
equally far. Three kinds of evidence, weakest last:

    paired       interleaved blocks of both: what drifts, drifts in both (`blocks` measures them)
    repeated     several runs of each side, or of one: Welch's comparison, a prediction interval
    single       one run of each: the bootstrap interval that each run has of itself. What differs
                 from run to run does not show in it

Several percentiles are looked at together. Intervals are widened so that with 95 % confidence
*all* of them hold (Bonferroni), or a table of twelve rows would cry wolf every other time.
"""

import math
from collections.abc import Sequence

import msgspec
import numpy as np
import numpy.typing as npt

from steelyard.lab.stats import Estimate

__all__ = [
    "CONFIDENCE",
    "POWER",
    "Contrast",
    "compare_paired",
    "compare_repeated",
    "compare_single",
]

Floats = npt.NDArray[np.float64]

CONFIDENCE = 0.95
POWER = 0.8
"""With that probability a difference of the size called detectable is found."""
_LEAST_SPREAD = 1e-6
"""Of logarithms. Equal values have no spread at all, which no measurement has."""


class Contrast(msgspec.Struct, frozen=True, kw_only=True):
    """The logarithm of B over A."""

    log_ratio: float
    standard_error: float
    critical: float
    """Standard errors from the estimate to the ends of its interval."""
    units: int
    """Blocks or runs that it rests on, of the side with fewer."""

    @property
    def low(self) -> float:
        return self.log_ratio - self.critical * self.standard_error

    @property
    def high(self) -> float:
        return self.log_ratio + self.critical * self.standard_error

    @property
    def change(self) -> Estimate:
        """0.1: B is 10 % larger."""
        return Estimate(*(math.expm1(x) for x in (self.log_ratio, self.low, self.high)))

    @property
    def detectable(self) -> float:
        """Smallest change that so much evidence finds with probability `POWER`."""
        return math.expm1((self.critical + _Z_POWER) * self.standard_error)

    def units_for(self, margin: float) -> int:
        """Units after which the interval is half as wide as the margin on each side, so that a
        difference either lies inside it or shows."""
        half = self.critical * self.standard_error
        return math.ceil(self.units * (half / (math.log1p(margin) / 2)) ** 2)


_Z_POWER = 0.8416212335729143
"""80 % quantile of the normal distribution."""


def compare_paired(differences: Floats) -> list[Contrast]:
    """(units, series) differences of logarithms, one row per group of interleaved blocks.

    The order within each group is drawn by lot, so that under equality every row is as likely as
    its negative; Student's mean of rows that are symmetric is a fair test.
    """
    units, series = differences.shape
    errors = _spread(differences) / math.sqrt(units)
    critical = _student(units - 1, series)
    means = differences.mean(axis=0)
    return [
        Contrast(log_ratio=float(m), standard_error=float(e), critical=critical, units=units)
        for m, e in zip(means, errors, strict=True)
    ]


def compare_repeated(left: Floats, right: Floats) -> list[Contrast]:
    """(runs, series) logarithms of either side; at least three of one and one of the other.

    With two of each, Welch's comparison; a single one is held against the spread of the others.
    """
    counts = left.shape[0], right.shape[0]
    series = left.shape[1]
    means = right.mean(axis=0) - left.mean(axis=0)
    if min(counts) >= 2:
        parts = [
            _spread(side) ** 2 / count for side, count in zip((left, right), counts, strict=True)
        ]
        errors = np.sqrt(parts[0] + parts[1])
        freedom = errors**4 / sum(
            part**2 / (count - 1) for part, count in zip(parts, counts, strict=True)
        )
    else:
        many = left if counts[0] > 1 else right
        errors = _spread(many) * math.sqrt(1 + 1 / len(many))
        freedom = np.full(series, len(many) - 1.0)
    return [
        Contrast(
            log_ratio=float(m),
            standard_error=float(e),
            critical=_student(float(f), series),
            units=min(counts),
        )
        for m, e, f in zip(means, errors, freedom, strict=True)
    ]


def compare_single(pairs: Sequence[tuple[Estimate, Estimate]]) -> list[Contrast | None]:
    """From values with 95 % intervals of their own. None where one of them has none."""
    known = [_has_interval(left) and _has_interval(right) for left, right in pairs]
    critical = _normal(max(sum(known), 1))
    return [
        Contrast(
            log_ratio=math.log(right.value / left.value),
            standard_error=math.hypot(_log_error(left), _log_error(right)),
            critical=critical,
            units=1,
        )
        if is_known
        else None
        for is_known, (left, right) in zip(known, pairs, strict=True)
    ]


def _spread(rows: Floats) -> Floats:
    spread: Floats = np.maximum(rows.std(axis=0, ddof=1), _LEAST_SPREAD)
    return spread


def _student(freedom: float, series: int) -> float:
    from scipy import stats  # takes a second to load

    return float(stats.t.ppf(1 - (1 - CONFIDENCE) / 2 / series, freedom))


def _normal(series: int) -> float:
    from scipy import stats

    return float(stats.norm.ppf(1 - (1 - CONFIDENCE) / 2 / series))


def _has_interval(estimate: Estimate) -> bool:
    return (
        estimate.low is not None
        and estimate.high is not None
        and 0 < estimate.low <= estimate.value <= estimate.high
    )


def _log_error(estimate: Estimate) -> float:
    assert estimate.low is not None
    assert estimate.high is not None
    # The wider arm: intervals of high percentiles are lopsided.
    arm = max(math.log(estimate.high / estimate.value), math.log(estimate.value / estimate.low))
    return max(arm / 1.959963984540054, _LEAST_SPREAD)
