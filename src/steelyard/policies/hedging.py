"""When to ask a second replica because the first token is late: Dean and Barroso's hedged requests.

Only for the first token: a stream that has begun is watched for stalls instead. Only what is later
than a high quantile of recent first tokens is hedged, and only a bounded share of all requests, so
that a service that is slow as a whole is not asked twice.
"""

from steelyard.policies.config import HedgingConfig
from steelyard.policies.quantiles import DurationQuantile
from steelyard.policies.retry_budget import RetryBudget

__all__ = ["Hedging"]

_ENOUGH = 20
_RESERVE = 2.0


class Hedging:
    """Shared by all requests of a service."""

    def __init__(self, config: HedgingConfig, now_s: float) -> None:
        self._config = config
        self._times = DurationQuantile(config.quantile, window=1024)
        self._budget = RetryBudget(
            share=config.budget_share, reserve=_RESERVE, per_s=0.0, now_s=now_s
        )

    @property
    def delay_s(self) -> float | None:
        """How long to wait before hedging; None while too little is known."""
        if self._times.count < _ENOUGH:
            return None
        return max(self._times.estimate_s(), self._config.min_s)

    def note_attempt(self, now_s: float) -> None:
        """A request's first attempt begins."""
        self._budget.note_attempt(now_s)

    def note_first_token(self, elapsed_s: float) -> None:
        """A request that was not hedged had its first token after so long."""
        self._times.add(elapsed_s)

    def try_spend(self, now_s: float) -> bool:
        """Take a hedge; False when none is left."""
        return self._budget.try_spend(now_s)
