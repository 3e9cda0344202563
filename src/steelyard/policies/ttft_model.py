"""Predicts the time to a first token from the tokens that must be computed before it.

    seconds ≈ base + slope · tokens        tokens: the prompt's own new ones and all queued ahead

Least squares over recent requests, older ones weighing less and less, with a weak prior so that
requests of one length do not make the slope wild. What the queue behind memory and places adds is
not in here but in `routing.target`.
"""

__all__ = ["TtftModel"]

_FORGET = 0.98
_PRIOR_WEIGHT = 0.5
_PRIOR_TOKENS = 1000.0
_OUTLIER = 4.0


class TtftModel:
    """The model of one replica."""

    __slots__ = ("_base_s", "_prior_base_s", "_prior_slope", "_slope", "_sums")

    def __init__(self, *, base_s: float = 0.02, slope_s: float = 1e-4) -> None:
        """The prior: what to expect before, and a little after, the first request."""
        self._prior_base_s = self._base_s = base_s
        self._prior_slope = self._slope = slope_s
        self._sums = (0.0, 0.0, 0.0, 0.0, 0.0)
        """Weights; and weighted sums of x, y, x², x·y."""

    @property
    def slope_s(self) -> float:
        """Seconds per token."""
        return self._slope

    @property
    def base_s(self) -> float:
        """Seconds that even an empty prompt takes."""
        return self._base_s

    def predict_s(self, tokens: float) -> float:
        """Seconds until the first token when `tokens` must be computed before it."""
        return self._base_s + self._slope * tokens

    def observe(self, tokens: float, elapsed_s: float) -> None:
        """Take in one request. A wild one counts as `_OUTLIER` times the expectation."""
        elapsed_s = min(elapsed_s, _OUTLIER * self.predict_s(tokens) + 0.1)
        weight, x, y, xx, xy = (_FORGET * total for total in self._sums)
        self._sums = (
            weight + 1.0,
            x + tokens,
            y + elapsed_s,
            xx + tokens * tokens,
            xy + tokens * elapsed_s,
        )
        self._fit()

    def _fit(self) -> None:
        """Solve for base and slope, neither of them negative."""
        weight, x, y, xx, xy = self._sums
        for tokens in (0.0, _PRIOR_TOKENS):
            prior_s = self._prior_base_s + self._prior_slope * tokens
            weight += _PRIOR_WEIGHT
            x += _PRIOR_WEIGHT * tokens
            y += _PRIOR_WEIGHT * prior_s
            xx += _PRIOR_WEIGHT * tokens * tokens
            xy += _PRIOR_WEIGHT * tokens * prior_s
        slope = (weight * xy - x * y) / (weight * xx - x * x)
        slope = min(max(slope, 0.0), y / x)
        self._slope = slope
        self._base_s = max((y - slope * x) / weight, 0.0)
