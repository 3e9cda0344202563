"""Keeps retries a bounded share of the load, whatever fails.

Every first attempt earns a share of a retry, every retry costs one, as in Finagle's retry budgets;
some are earned by time alone, so that a quiet service can retry too. Without such a bound, a
service in trouble is asked a multiple of what it already cannot do (see the chapter on cascading
failures in Google's SRE book).
"""

__all__ = ["RetryBudget"]


class RetryBudget:
    """One budget, shared by all requests of a service."""

    __slots__ = ("_balance", "_now_s", "_per_s", "_reserve", "_share", "refused")

    def __init__(self, *, share: float, reserve: float, per_s: float, now_s: float) -> None:
        """`share`: earned per first attempt. `per_s`: earned by time alone. `reserve`: what can be
        saved up, and is there at the start."""
        self._share = share
        self._reserve = reserve
        self._per_s = per_s
        self._balance = reserve
        self._now_s = now_s
        self.refused = 0
        """Retries that were not allowed."""

    @property
    def balance(self) -> float:
        """Retries that are left, as of the last call."""
        return self._balance

    def note_attempt(self, now_s: float) -> None:
        """A request's first attempt begins."""
        self._earn(now_s, self._share)

    def try_spend(self, now_s: float) -> bool:
        """Take a retry; False when none is left."""
        self._earn(now_s, 0.0)
        if self._balance < 1.0:
            self.refused += 1
            return False
        self._balance -= 1.0
        return True

    def _earn(self, now_s: float, amount: float) -> None:
        amount += self._per_s * max(now_s - self._now_s, 0.0)
        self._now_s = max(now_s, self._now_s)
        self._balance = min(self._balance + amount, self._reserve)
