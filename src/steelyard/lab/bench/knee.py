"""Where a curve bends, and where a rising curve reaches a limit."""

import math
from collections.abc import Sequence

__all__ = ["find_knee", "reach"]

_LEAST_BEND = 0.1
"""Of the height of the curve, between it and its chord: less is a straight line with noise."""


def find_knee(xs: Sequence[float], ys: Sequence[float]) -> int | None:
    """Index of the point that lies farthest above the chord from the first point to the highest
    (Satopää et al., "Finding a kneedle in a haystack", 2011). None where nothing bends.

    `xs` ascend. What comes after the highest point has nothing to add.
    """
    if len(xs) < 3:
        return None
    top = max(range(len(ys)), key=lambda at: ys[at])
    width, height = xs[top] - xs[0], ys[top] - ys[0]
    if top == 0 or height <= 0:
        return 0
    # Where it falls again, the top itself is a bend, if no point before it is a stronger one.
    bends = {top: _LEAST_BEND} if top < len(xs) - 1 else {}
    for at in range(1, top):
        bends[at] = (ys[at] - ys[0]) / height - (xs[at] - xs[0]) / width
    best = max(bends, key=lambda at: bends[at], default=None)
    return best if best is not None and bends[best] >= _LEAST_BEND else None


def reach(xs: Sequence[float], ys: Sequence[float], limit: float) -> float | None:
    """The x at which the curve first goes over the limit, between points on a logarithmic x.

    None when it never does; 0 when it is over the limit from the first point on.
    """
    if not xs or ys[0] > limit:
        return 0.0 if xs else None
    for at in range(1, len(xs)):
        if ys[at] > limit:
            share = (limit - ys[at - 1]) / (ys[at] - ys[at - 1])
            low, high = math.log(xs[at - 1]), math.log(xs[at])
            return math.exp(low + share * (high - low))
    return None
