"""Where a run is in its steady state: found in the data, not guessed.

MSER-5 (White, "An effective truncation heuristic for bias reduction in simulation output", 1997;
batches of five: Spratt, 1998): of all ways to cut off the beginning, take the one after which the
mean of the rest has the smallest standard error. A cut in the second half means that the run never
settled. In a series that is steady from its first value on, MSER cuts wherever chance has it; such
a cut is not made, because it would only throw values away.
"""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

__all__ = ["Truncation", "mser"]

Floats = npt.NDArray[np.float64]

_BATCH = 5
_CHANCE = 3.0
"""Standard errors."""
_TIE = 1e-12
_FEWEST_BATCHES = 10
"""Below, values are taken one by one."""


@dataclass(frozen=True, slots=True)
class Truncation:
    """How much of a series to leave out."""

    cut: int
    """Values at the beginning."""
    is_settled: bool
    """Whether there is a steady rest; otherwise `cut` is 0."""


def mser(values: Floats) -> Truncation:
    """For a series in the order of time."""
    batch = _BATCH if len(values) >= _BATCH * _FEWEST_BATCHES else 1
    batches = len(values) // batch
    if batches < 4:
        return Truncation(0, False)
    means = values[: batches * batch].reshape(batches, batch).mean(axis=1)
    errors = _squared_errors(means)
    half = errors[: batches // 2 + 1]
    best = int(np.argmax(half <= half.min() + _TIE * errors[0]))  # the first of equals
    # The bound itself being best means that cutting still more would be better yet.
    if best >= batches // 2:
        return Truncation(0, False)
    if _is_like_the_rest(means[:best], means[best:]):
        return Truncation(0, True)
    return Truncation(best * batch, True)


def _is_like_the_rest(beginning: Floats, rest: Floats) -> bool:
    """Whether nothing is gained by leaving the beginning out: its mean is that of the rest, to
    within 1 % or what chance explains."""
    if not len(beginning):
        return True
    off = abs(float(beginning.mean()) - float(rest.mean()))
    spread = float(rest.std(ddof=1))
    chance = _CHANCE * spread * (1 / len(beginning) + 1 / len(rest)) ** 0.5
    return bool(off <= max(0.01 * abs(float(rest.mean())), chance))


def _squared_errors(means: Floats) -> Floats:
    """Of the mean of means[d:], for every d but the last few."""
    left = np.arange(len(means), 0, -1.0)
    centred = means - means.mean()
    sums = np.cumsum(centred[::-1])[::-1]
    squares = np.cumsum((centred**2)[::-1])[::-1]
    errors: Floats = np.maximum(squares - sums**2 / left, 0.0) / left**2
    return errors
