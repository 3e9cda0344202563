"""A quantile of recent durations, forgetting old ones.

A histogram with buckets that grow by a fifth, so that an estimate is at most 10 % off, over 10 ms
to some hours; when it is full all counts are halved. Constant memory, and adding is one addition:
the idea of HDR histograms with the forgetting of an exponential window.
"""

import math

__all__ = ["DurationQuantile"]

_FIRST_S = 0.01
_GROWTH = 1.2
_BUCKETS = 80
_LOG_GROWTH = math.log(_GROWTH)


class DurationQuantile:
    """The `quantile` of durations; `window` is about how many of them it remembers."""

    __slots__ = ("_counts", "_quantile", "_total", "_window")

    def __init__(self, quantile: float, *, window: int = 4096) -> None:
        assert 0 < quantile < 1 and window >= 2
        self._quantile = quantile
        self._window = window
        self._counts = [0.0] * _BUCKETS
        self._total = 0.0

    @property
    def count(self) -> float:
        """How many durations the estimate rests on."""
        return self._total

    def add(self, duration_s: float, times: int = 1) -> None:
        """Take in a duration ≥ 0 that was seen `times` times."""
        bucket = 0
        if duration_s > _FIRST_S:
            bucket = min(int(math.log(duration_s / _FIRST_S) / _LOG_GROWTH) + 1, _BUCKETS - 1)
        self._counts[bucket] += times
        self._total += times
        if self._total > self._window:
            self._counts = [count / 2 for count in self._counts]
            self._total /= 2

    def estimate_s(self) -> float:
        """An upper bound of the quantile's bucket; 0 while nothing was added."""
        below = self._quantile * self._total
        seen = 0.0
        if below <= 0:
            return 0.0
        for bucket, count in enumerate(self._counts):
            seen += count
            if seen >= below:
                return _FIRST_S * _GROWTH**bucket
        return _FIRST_S * _GROWTH**_BUCKETS
