"""What a drill has cost, from the streams that ran through it."""

from collections.abc import Sequence
from dataclasses import dataclass

from steelyard.lab.drill.streams import DrillStream

__all__ = ["DrillReport", "quantile"]


@dataclass(frozen=True, slots=True, kw_only=True)
class DrillReport:
    """Compared with the same streams undisturbed."""

    streams: int
    failed: int
    """Ended with an error, or without an end."""
    tokens_lost: int
    tokens_repeated: int
    usage_differs: int
    """Streams that would be billed otherwise."""
    gap_p50_s: float
    """Of the longest silence of every stream since the failure."""
    gap_p99_s: float
    gap_max_s: float
    usual_gap_s: float
    """The longest silence of any stream while nothing happened."""

    @property
    def is_clean(self) -> bool:
        """Whether no client could tell, but for the pause."""
        return not (self.failed or self.tokens_lost or self.tokens_repeated or self.usage_differs)

    @classmethod
    def of(
        cls, streams: Sequence[DrillStream], undisturbed: Sequence[DrillStream], at_s: float
    ) -> "DrillReport":
        """`at_s`: when it happened, as `time.monotonic` tells it."""
        pairs = list(zip(streams, undisturbed, strict=True))
        gaps_s = [stream.gap_s(at_s) for stream in streams]
        return cls(
            streams=len(streams),
            failed=sum(stream.has_failed for stream in streams),
            tokens_lost=sum(stream.lost(other) for stream, other in pairs),
            tokens_repeated=sum(stream.repeated(other) for stream, other in pairs),
            usage_differs=sum(stream.counts != other.counts for stream, other in pairs),
            gap_p50_s=quantile(gaps_s, 0.5),
            gap_p99_s=quantile(gaps_s, 0.99),
            gap_max_s=max(gaps_s),
            usual_gap_s=max(stream.gap_s(0.0) for stream in undisturbed),
        )


def quantile(values: Sequence[float], q: float) -> float:
    """By linear interpolation; at least one value."""
    ordered = sorted(values)
    at = q * (len(ordered) - 1)
    low = int(at)
    high = min(low + 1, len(ordered) - 1)
    return ordered[low] + (ordered[high] - ordered[low]) * (at - low)
