"""Who has been given more than a fair share of the work lately.

Work is tokens: prompts to compute and outputs to expect. Old work fades exponentially; instead of
shrinking all the old, new work is counted larger and larger, so that nothing has to be touched with
time passing. A target is within bounds while its work, for its capacity, is at most `imbalance`
times the mean: consistent hashing with bounded loads (Mirrokni, Thorup, Zadimoghaddam 2016), with
whatever prefers a target in place of the hash.
"""

import math
from collections.abc import Iterable

from steelyard.policies.routing.target import Target

__all__ = ["WorkLedger"]

_LARGEST = 1e100
_SLACK_REQUESTS = 2.0
_MEMORY = 0.98


class WorkLedger:
    """Owns `work` of the targets it is given."""

    def __init__(self, *, imbalance: float, window_s: float) -> None:
        self._imbalance = imbalance
        self._window_s = window_s
        self._total = 0.0
        self._start_s: float | None = None
        self._mean_request = 0.0

    def add(self, target: Target, tokens: float, now_s: float, everyone: Iterable[Target]) -> None:
        """`target`, one of `everyone`, was given work."""
        if self._start_s is None:
            self._start_s = now_s
        scale = self._scale(now_s)
        if scale > _LARGEST:
            self._start_s = now_s
            self._total /= scale
            for one in everyone:
                one.work /= scale
            scale = 1.0
        target.work += tokens * scale
        self._total += tokens * scale
        memory = _MEMORY if self._mean_request else 0.0
        self._mean_request += (1 - memory) * (tokens - self._mean_request)

    def join(self, target: Target, capacity: float) -> None:
        """`target` comes in, or comes back, among others, `capacity` being that of all with it.

        It counts as having had its share of work, or it would now be given everything.
        """
        others = self._total - target.work
        other_capacity = max(capacity - target.capacity, 0.0)
        target.work = others * target.capacity / other_capacity if other_capacity else 0.0
        self._total = others + target.work

    def forget(self, target: Target) -> None:
        """`target` is gone, and its work with it."""
        self._total -= target.work
        target.work = 0.0

    def bound(self, capacity: float, targets: int, now_s: float) -> float:
        """Work per capacity up to which one of `targets` may be given more; `capacity`: of all.

        A few requests are always allowed, so that a quiet service is not told to alternate.
        """
        if capacity <= 0:
            return math.inf
        slack = _SLACK_REQUESTS * self._mean_request * self._scale(now_s)
        return (self._imbalance * self._total + slack * targets) / capacity

    def _scale(self, now_s: float) -> float:
        started_s = now_s if self._start_s is None else self._start_s
        return math.exp((now_s - started_s) / self._window_s)
