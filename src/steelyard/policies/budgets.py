"""What a tenant may still use: requests and tokens per minute, and requests at once.

A budget of L units per minute is a bucket that holds L units, is full at first, and refills
evenly. Taking n units needs n in it. So in any t seconds at most L·(1 + t/60) units are granted,
and somebody who was idle may use a minute's worth at once (the token bucket, which is the GCRA of
ITU-T Recommendation I.371 in another notation).

Arithmetic is exact. Levels are whole ticks, 60,000,000 to a unit, so that a budget of L refills by
L ticks in a microsecond: nothing is rounded, nothing drifts, and a refund undoes a reservation to
the tick. `MAX_PER_MINUTE` keeps all of it below 2**53, where the floats of a Redis script are
exact too.

Where accounts live, and who waits for whom, is the business of `gateway.limits`.
"""

from dataclasses import dataclass
from typing import Literal

__all__ = [
    "MAX_PER_MINUTE",
    "TICKS_PER_UNIT",
    "Account",
    "Gauge",
    "Limits",
    "Resource",
    "Verdict",
    "refilled",
]

Resource = Literal["requests", "tokens", "concurrency"]

TICKS_PER_UNIT = 60_000_000
"""Microseconds in a minute."""

MAX_PER_MINUTE = 100_000_000
"""Largest budget; its bucket holds 6e15 ticks."""

_FULL = MAX_PER_MINUTE * TICKS_PER_UNIT

_BUSY_RETRY_US = 1_000_000
"""Nobody knows when a place becomes free; a second is when asking again costs little."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """Of one tenant. None: unlimited."""

    requests_per_minute: int | None = None
    tokens_per_minute: int | None = None
    concurrent_requests: int | None = None

    @property
    def is_unlimited(self) -> bool:
        """True when there is nothing to keep account of."""
        return (
            self.requests_per_minute is None
            and self.tokens_per_minute is None
            and self.concurrent_requests is None
        )


@dataclass(frozen=True, slots=True)
class Gauge:
    """How full one budget is."""

    limit: int
    remaining: int
    """Whole units that could be taken now."""
    reset_us: int
    """Until it is full again, if nothing is taken."""

    @classmethod
    def of(cls, limit: int, level: int) -> "Gauge":
        """From a level in ticks, which is negative while more was used than reserved."""
        missing = limit * TICKS_PER_UNIT - level
        return cls(limit, max(level // TICKS_PER_UNIT, 0), _ceil_div(missing, limit))


@dataclass(frozen=True, slots=True)
class Verdict:
    """What came of asking, and how full the budgets are now."""

    requests: Gauge | None = None
    """None: unlimited."""
    tokens: Gauge | None = None
    refused_by: Resource | None = None
    """The budget that is spent; None when the answer is yes."""
    retry_after_us: int = 0
    """When the same question can be answered with yes, if nobody else asks."""


class Account:
    """One tenant's budgets. Every method takes the present in microseconds, and the limits, which
    may change while requests run."""

    __slots__ = ("_at_us", "_requests", "_tokens", "in_flight")

    def __init__(self, limits: Limits, now_us: int) -> None:
        self._at_us = now_us
        self._requests = refilled(_FULL, limits.requests_per_minute, 0)
        self._tokens = refilled(_FULL, limits.tokens_per_minute, 0)
        self.in_flight = 0
        """Requests opened and not closed."""

    def open(self, limits: Limits, now_us: int) -> Verdict:
        """Take one request and one place. All or nothing; after a yes, `close` must follow."""
        self._refill(limits, now_us)
        if limits.concurrent_requests is not None and self.in_flight >= limits.concurrent_requests:
            return self._verdict(limits, "concurrency", _BUSY_RETRY_US)
        if limits.requests_per_minute is not None:
            missing = TICKS_PER_UNIT - self._requests
            if missing > 0:
                wait_us = _ceil_div(missing, limits.requests_per_minute)
                return self._verdict(limits, "requests", wait_us)
            self._requests -= TICKS_PER_UNIT
        self.in_flight += 1
        return self._verdict(limits)

    def reserve(self, limits: Limits, tokens: int, now_us: int) -> Verdict:
        """Take `tokens`, or nothing. More than `tokens_per_minute` can never be taken."""
        self._refill(limits, now_us)
        if limits.tokens_per_minute is not None:
            missing = tokens * TICKS_PER_UNIT - self._tokens
            if missing > 0:
                wait_us = _ceil_div(missing, limits.tokens_per_minute)
                return self._verdict(limits, "tokens", wait_us)
            self._tokens -= tokens * TICKS_PER_UNIT
        return self._verdict(limits)

    def close(self, limits: Limits, now_us: int, *, reserved: int = 0, used: int = 0) -> None:
        """Give the place back, and the reserved tokens that were not used.

        Tokens used beyond the reservation are owed: the budget goes below zero.
        """
        assert self.in_flight > 0, "a request is closed once"
        self.in_flight -= 1
        self._refill(limits, now_us)
        if limits.tokens_per_minute is not None:
            full = limits.tokens_per_minute * TICKS_PER_UNIT
            self._tokens = min(self._tokens + (reserved - used) * TICKS_PER_UNIT, full)

    def is_fresh(self, limits: Limits, now_us: int) -> bool:
        """True when a new account would be no different, so that this one can be forgotten."""
        self._refill(limits, now_us)
        return (
            self.in_flight == 0
            and self._requests == refilled(_FULL, limits.requests_per_minute, 0)
            and self._tokens == refilled(_FULL, limits.tokens_per_minute, 0)
        )

    def verdict(self, limits: Limits, now_us: int) -> Verdict:
        """How full the budgets are. Takes nothing."""
        self._refill(limits, now_us)
        return self._verdict(limits)

    def _refill(self, limits: Limits, now_us: int) -> None:
        elapsed_us = now_us - self._at_us
        if elapsed_us < 0:  # a clock that was set back must not take anything away
            return
        self._at_us = now_us
        self._requests = refilled(self._requests, limits.requests_per_minute, elapsed_us)
        self._tokens = refilled(self._tokens, limits.tokens_per_minute, elapsed_us)

    def _verdict(
        self, limits: Limits, refused_by: Resource | None = None, retry_after_us: int = 0
    ) -> Verdict:
        requests, tokens = limits.requests_per_minute, limits.tokens_per_minute
        return Verdict(
            None if requests is None else Gauge.of(requests, self._requests),
            None if tokens is None else Gauge.of(tokens, self._tokens),
            refused_by,
            retry_after_us,
        )


def refilled(level: int, per_minute: int | None, elapsed_us: int) -> int:
    """The level in ticks after `elapsed_us` ≥ 0. An unlimited budget counts as the largest one, so
    that it begins full should it become limited."""
    if per_minute is None:
        return _FULL
    return min(level + elapsed_us * per_minute, per_minute * TICKS_PER_UNIT)


def _ceil_div(count: int, by: int) -> int:
    return -(-count // by)
