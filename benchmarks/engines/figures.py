"""Plain statistics over few numbers: quantiles, medians over rounds, ratios of medians.

Rounds are interleaved, so two engines' values of one round were taken under the same conditions:
the spread of a ratio is that of the ratios within rounds.
"""

import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

__all__ = ["Ratio", "Spread", "quantile", "ratio_of", "spread_of"]


@dataclass(frozen=True, slots=True)
class Spread:
    """A median over rounds, with the least and the greatest value."""

    median: float
    low: float
    high: float
    rounds: int


@dataclass(frozen=True, slots=True)
class Ratio:
    """One median over another, with the least and the greatest ratio within a round."""

    value: float
    low: float
    high: float


def quantile(values: Sequence[float], share: float) -> float:
    """The smallest value that at least `share` of all do not exceed; NaN of nothing.

    A value that was measured, never one in between: p99 of few values is their maximum.
    """
    if not values:
        return math.nan
    ordered = sorted(values)
    return ordered[max(0, math.ceil(share * len(ordered)) - 1)]


def spread_of(values: Sequence[float]) -> Spread:
    """Of at least one value."""
    return Spread(statistics.median(values), min(values), max(values), len(values))


def ratio_of(ours: Mapping[int, float], theirs: Mapping[int, float]) -> Ratio:
    """By round. Rounds that only one of them has count for the medians, not for the spread."""
    value = statistics.median(ours.values()) / statistics.median(theirs.values())
    within = [ours[number] / theirs[number] for number in ours.keys() & theirs.keys()]
    return Ratio(value, min(within, default=value), max(within, default=value))
