"""How long a step will take: learned from the steps that ran, asked before the next one.

    seconds ≈ a + b · decode tokens + c · prefill tokens + d · attended tokens

Weighted least squares with exponential forgetting, solved by two rounds of coordinate descent
per step, warm-started: each coefficient in turn takes its best value given the others,
cut off at 0 (Zakharov, White and Liu, "Low-complexity RLS algorithms using dichotomous coordinate
descent iterations", 2008, for the idea; here with a bound and a proximal term). Errors are
relative, so short and long steps count alike, and a step that took more than twice what was
predicted counts as twice: one stall teaches next to nothing, while a lasting change is followed.
There is no such bound below, for nothing makes a step faster than it can be.

What to do with a prediction is decided in `prefill_allowance`.
"""

import math
from statistics import median

__all__ = ["StepCost", "attended_tokens"]

_PRIOR_S = (5e-3, 5e-4, 5e-4, 1e-6)
"""a, b, c, d of a small model on a CPU. The first steps correct the scale; the proportions, which
make prefill expensive, keep the first prompts from stalling running streams."""

_FORGETTING = 0.998
"""Weight of a step relative to the next: a memory of about 500 steps."""

_CALIBRATION_STEPS = 8
"""Steps that only set the scale, by their median: the first ones are often slow."""

_OUTLIER_RATIO = 2.0
_PRIOR_WEIGHT = 0.3
"""Steps of evidence that the prior is worth, per coefficient: it should yield soon."""

_PROXIMAL = 1e-3
"""Keeps a coefficient where it is when no remembered step says anything about it."""

_ROUNDS = 2
"""More gain nothing: what one step leaves unsolved the next goes on with."""

_LIKE_STEPS = 16
"""Steps with the same prefill, within an eighth, after which a different one would teach more."""

_LEAST_S = 1e-7
_UNBOUNDED = 1 << 40


def attended_tokens(start: int, count: int, limit: int | None = None) -> int:
    """Tokens that tokens [start, start + count) of a sequence attend to, themselves included.

    `limit` is the longest window of any layer; None when some layer attends to everything.
    """
    if limit is None:
        return count * start + count * (count + 1) // 2
    growing = min(count, max(0, limit - start))
    return growing * start + growing * (growing + 1) // 2 + (count - growing) * limit


class StepCost:
    """The fitted cost model. Predictions before the first step rest on a prior."""

    __slots__ = (
        "_base_s",
        "_last_prefill",
        "_like_steps",
        "_moments",
        "_ratios",
        "_targets",
        "_weights",
        "attend_limit",
        "rates",
    )

    def __init__(self, *, attend_limit: int | None = None) -> None:
        self.attend_limit = attend_limit
        """Tokens any layer attends to at most; None when there is no such limit."""
        self._base_s: tuple[float, ...] = _PRIOR_S
        self._ratios: list[float] = []
        # The normal equations of the weights by which `_base_s` is multiplied.
        self._moments = [[_PRIOR_WEIGHT * (i == j) for j in range(4)] for i in range(4)]
        self._targets = [_PRIOR_WEIGHT] * 4
        self._weights = [1.0] * 4
        self._last_prefill = 0
        self._like_steps = 0
        self.rates: tuple[float, ...] = _PRIOR_S
        """a (s per step), b, c, d (s per decode, prefill and attended token); none is negative."""

    @property
    def wants_contrast(self) -> bool:
        """Whether the latest steps had so much the same prefill that they teach nothing about it.

        A budget computed from a wrong rate would repeat itself for ever, and the rate with it.
        """
        return self._like_steps >= _LIKE_STEPS

    def predict_s(
        self, *, decode_tokens: int = 0, prefill_tokens: int = 0, attended_tokens: int = 0
    ) -> float:
        """Seconds such a step will take; always positive."""
        a, b, c, d = self.rates
        return _LEAST_S + a + b * decode_tokens + c * prefill_tokens + d * attended_tokens

    def prefill_s(self, tokens: int, position: int) -> float:
        """Seconds that computing `tokens` more from `position` on adds to a step."""
        _, _, c, d = self.rates
        return c * tokens + d * attended_tokens(position, tokens, self.attend_limit)

    def prefill_within(self, spare_s: float, position: int) -> int:
        """The most tokens from `position` on that add at most `spare_s` to a step."""
        _, _, c, d = self.rates
        if self.attend_limit is None:
            return _most_growing(spare_s, c + d * (position + 0.5), d)
        growing = max(0, self.attend_limit - position)
        spare_after_s = spare_s - self.prefill_s(growing, position)
        if spare_after_s < 0:
            return _most_growing(spare_s, c + d * (position + 0.5), d)
        return growing + _most_growing(spare_after_s, c + d * self.attend_limit, 0.0)

    def prefill_budget(
        self, *, decode_tokens: int, decode_attended: int, stretch: float, position: int
    ) -> int:
        """The most prefill tokens from `position` on with which a step of decodes is predicted to
        take at most `stretch` times as long as without."""
        spare_s = self.spare_s(
            decode_tokens=decode_tokens, decode_attended=decode_attended, stretch=stretch
        )
        return self.prefill_within(spare_s, position)

    def spare_s(self, *, decode_tokens: int, decode_attended: int, stretch: float) -> float:
        """Seconds that `stretch` leaves for prefill beside a step of decodes."""
        alone_s = self.predict_s(decode_tokens=decode_tokens, attended_tokens=decode_attended)
        return (stretch - 1.0) * alone_s

    def observe(
        self, *, decode_tokens: int, prefill_tokens: int, attended_tokens: int, elapsed_s: float
    ) -> None:
        """Learn from a step that took `elapsed_s`; zero or less is no measurement."""
        if elapsed_s <= 0:
            return
        is_like = 8 * abs(prefill_tokens - self._last_prefill) < prefill_tokens
        self._like_steps = self._like_steps + 1 if is_like else 0
        self._last_prefill = prefill_tokens
        predicted_s = self.predict_s(
            decode_tokens=decode_tokens,
            prefill_tokens=prefill_tokens,
            attended_tokens=attended_tokens,
        )
        if len(self._ratios) < _CALIBRATION_STEPS:
            self._calibrate(elapsed_s / predicted_s)
            return
        base_s = self._base_s
        shares = (
            base_s[0] / predicted_s,
            base_s[1] * decode_tokens / predicted_s,
            base_s[2] * prefill_tokens / predicted_s,
            base_s[3] * attended_tokens / predicted_s,
        )
        ratio = min(elapsed_s / predicted_s, _OUTLIER_RATIO)
        self._accumulate(shares, ratio)
        self._solve()

    def _calibrate(self, ratio: float) -> None:
        scale = self._base_s[0] / _PRIOR_S[0]
        self._ratios.append(ratio * scale)
        scale = median(self._ratios)
        self.rates = self._base_s = tuple(rate * scale for rate in _PRIOR_S)

    def _accumulate(self, shares: tuple[float, ...], ratio: float) -> None:
        moments, targets = self._moments, self._targets
        for i in range(4):
            row, share = moments[i], shares[i]
            for j in range(4):
                row[j] = _FORGETTING * row[j] + share * shares[j]
            targets[i] = _FORGETTING * targets[i] + share * ratio

    def _solve(self) -> None:
        weights, moments, targets = self._weights, self._moments, self._targets
        for _ in range(_ROUNDS):
            for i in range(4):
                m = moments[i]
                fitted = (
                    m[0] * weights[0] + m[1] * weights[1] + m[2] * weights[2] + m[3] * weights[3]
                )
                step = (targets[i] - fitted) / (m[i] + _PROXIMAL)
                weights[i] = max(0.0, weights[i] + step)
        base_s = self._base_s
        self.rates = (
            base_s[0] * weights[0],
            base_s[1] * weights[1],
            base_s[2] * weights[2],
            base_s[3] * weights[3],
        )


def _most_growing(spare_s: float, first_s: float, growth_s: float) -> int:
    """The most n with n · first_s + n² · growth_s / 2 ≤ spare_s, within reason."""
    if spare_s == math.inf:
        return _UNBOUNDED
    denominator = first_s + math.sqrt(first_s * first_s + 2.0 * growth_s * max(spare_s, 0.0))
    if 2.0 * spare_s >= denominator * _UNBOUNDED:
        return _UNBOUNDED
    return int(max(0.0, 2.0 * spare_s / denominator))
