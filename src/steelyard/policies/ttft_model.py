"""Predicts the time to a first token from the tokens that must be computed before it.

    seconds ≈ base + slope · tokens        tokens: the prompt's own new ones and all queued ahead

Least squares over recent requests, older ones weighing less and less, drawn a little towards what
was thought before, or is thought of all replicas, so that requests of one length do not make the
slope wild. What the queue behind memory and places adds is
not in here but in `routing.target`.
"""

__all__ = ["TtftModel"]

_FORGET = 0.98
_PRIOR_WEIGHT = 0.5
_PRIOR_TOKENS = 1000.0
_OUTLIER = 4.0


class TtftModel:
    """The model of one replica, or of many: what one has learned, its `parent` learns too."""

    __slots__ = ("_base_s", "_slope_s", "_sums", "parent")

    def __init__(
        self, *, base_s: float = 0.02, slope_s: float = 1e-4, parent: "TtftModel | None" = None
    ) -> None:
        """`base_s`, `slope_s`: what to expect before the first request; with a `parent`, what that
        one expects is expected instead."""
        self.parent = parent
        self._base_s = base_s
        self._slope_s = slope_s
        self._sums = (0.0, 0.0, 0.0, 0.0, 0.0)
        """Weights; and weighted sums of x, y, x², x·y."""

    @property
    def slope_s(self) -> float:
        """Seconds per token."""
        return self.parent.slope_s if self.parent and not self._sums[0] else self._slope_s

    @property
    def base_s(self) -> float:
        """Seconds that even an empty prompt takes."""
        return self.parent.base_s if self.parent and not self._sums[0] else self._base_s

    def predict_s(self, tokens: float) -> float:
        """Seconds until the first token when `tokens` must be computed before it."""
        return self.base_s + self.slope_s * tokens

    def observe(self, tokens: float, elapsed_s: float) -> None:
        """Take in one request. A wild one counts as `_OUTLIER` times the expectation."""
        if self.parent is not None:
            self.parent.observe(tokens, elapsed_s)
        elapsed_s = min(elapsed_s, _OUTLIER * self.predict_s(tokens) + 0.1)
        weight, x, y, xx, xy = (_FORGET * total for total in self._sums)
        prior = self.parent or self
        base_s, slope_s = prior.base_s, prior.slope_s
        self._sums = (
            weight + 1.0,
            x + tokens,
            y + elapsed_s,
            xx + tokens * tokens,
            xy + tokens * elapsed_s,
        )
        self._fit(base_s, slope_s)

    def _fit(self, prior_base_s: float, prior_slope_s: float) -> None:
        """Solve for base and slope, neither of them negative."""
        weight, x, y, xx, xy = self._sums
        for tokens in (0.0, _PRIOR_TOKENS):
            prior_s = prior_base_s + prior_slope_s * tokens
            weight += _PRIOR_WEIGHT
            x += _PRIOR_WEIGHT * tokens
            y += _PRIOR_WEIGHT * prior_s
            xx += _PRIOR_WEIGHT * tokens * tokens
            xy += _PRIOR_WEIGHT * tokens * prior_s
        slope_s = (weight * xy - x * y) / (weight * xx - x * x)
        self._slope_s = min(max(slope_s, 0.0), y / x)
        self._base_s = max((y - self._slope_s * x) / weight, 0.0)
