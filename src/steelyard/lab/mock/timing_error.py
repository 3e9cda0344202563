"""The mock's own timing error: how long after its due time each token was handed to the kernel.

A histogram of fixed size with steps of 5 µs up to 50 ms, exact maximum; costs well under a
microsecond per value.
"""

from array import array

import msgspec

__all__ = ["TimingError", "TimingSummary"]

_STEP_NS = 5_000
_STEPS = 10_000


class TimingSummary(msgspec.Struct, frozen=True, kw_only=True):
    """Percentiles in milliseconds, each rounded up to the histogram's step."""

    tokens: int
    mean_ms: float
    p50_ms: float
    p90_ms: float
    p99_ms: float
    p999_ms: float
    max_ms: float

    def __str__(self) -> str:
        return (
            f"own timing error of {self.tokens:,} tokens: mean {self.mean_ms:.3f} ms, "
            f"p50 {self.p50_ms:.3f}, p90 {self.p90_ms:.3f}, p99 {self.p99_ms:.3f}, "
            f"p99.9 {self.p999_ms:.3f}, max {self.max_ms:.3f} ms"
        )


class TimingError:
    """Collects errors."""

    def __init__(self) -> None:
        self._steps = array("Q", bytes(8 * (_STEPS + 1)))
        self._tokens = 0
        self._sum_ns = 0
        self._max_ns = 0

    def record(self, late_ns: int, tokens: int) -> None:
        """`tokens` tokens were sent together, this late; never early."""
        self._steps[min(late_ns // _STEP_NS, _STEPS)] += tokens
        self._tokens += tokens
        self._sum_ns += late_ns * tokens
        self._max_ns = max(self._max_ns, late_ns)

    def summary(self) -> TimingSummary:
        """So far; all zero before the first token."""
        tokens = max(self._tokens, 1)
        return TimingSummary(
            tokens=self._tokens,
            mean_ms=self._sum_ns / tokens / 1e6,
            p50_ms=self._percentile_ms(0.5),
            p90_ms=self._percentile_ms(0.9),
            p99_ms=self._percentile_ms(0.99),
            p999_ms=self._percentile_ms(0.999),
            max_ms=self._max_ns / 1e6,
        )

    def _percentile_ms(self, share: float) -> float:
        wanted = share * self._tokens
        seen = 0
        for step, count in enumerate(self._steps):
            seen += count
            if count and seen >= wanted:
                return min((step + 1) * _STEP_NS, self._max_ns) / 1e6
        return 0.0
