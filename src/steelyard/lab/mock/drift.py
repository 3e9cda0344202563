"""Slow noise that all latencies share, as machines have it: good minutes and bad ones.

A factor exp(x(t)), where x is a stationary Gaussian process with exponential autocorrelation
(Ornstein and Uhlenbeck), drawn on a grid of a tenth of its memory and held between grid points.
Its mean is 1. Noise of single tokens is in the distributions.
"""

import math
import random

from steelyard.lab.mock.timers import NS_PER_S

__all__ = ["Drift"]

_POINTS_PER_MEMORY = 10


class Drift:
    """The factor as a function of time; `cv` 0 is always exactly 1."""

    def __init__(self, *, cv: float, memory_s: float, seed: int, start_ns: int) -> None:
        self._variance = math.log1p(cv * cv)
        self._keep = math.exp(-1 / _POINTS_PER_MEMORY)
        self._grid_ns = memory_s * NS_PER_S / _POINTS_PER_MEMORY
        self._generator = random.Random(f"drift {seed}")  # noqa: S311 not for secrets
        self._start_ns = start_ns
        self._point = 0
        self._state = self._generator.gauss(0, math.sqrt(self._variance))

    def factor(self, at_ns: int) -> float:
        """Multiply a duration that begins at `at_ns` with this. Times must not run backwards."""
        if self._variance == 0:
            return 1.0
        point = int((at_ns - self._start_ns) / self._grid_ns)
        fresh = math.sqrt(self._variance * (1 - self._keep**2))
        while self._point < point:
            self._point += 1
            self._state = self._keep * self._state + self._generator.gauss(0, fresh)
        return math.exp(self._state - self._variance / 2)
