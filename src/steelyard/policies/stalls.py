"""How long silence may last before it is a stall, learned per replica.

A stall is `factor` times the 99th percentile of the silences between tokens seen there, and never
shorter than `floor_s`. While few silences are known the floor alone counts: a replica that is
slower than that has its first streams moved once, and is known from then on.
Who is silent is measured by `gateway.failover`.
"""

from steelyard.policies.config import StallConfig
from steelyard.policies.quantiles import DurationQuantile

__all__ = ["StallLimit"]

_ENOUGH = 100


class StallLimit:
    """The limit of one replica."""

    __slots__ = ("_config", "_silences")

    def __init__(self, config: StallConfig) -> None:
        self._config = config
        self._silences = DurationQuantile(0.99)

    def add(self, silence_s: float, times: int = 1) -> None:
        """Take in silences between tokens of a stream that went on."""
        self._silences.add(silence_s, times)

    @property
    def limit_s(self) -> float:
        """Silence of a whole replica that counts as a stall."""
        config = self._config
        if self._silences.count < _ENOUGH:
            return config.floor_s
        learned_s = config.factor * self._silences.estimate_s()
        return max(config.floor_s, min(learned_s, config.cap_s))

    @property
    def lone_limit_s(self) -> float:
        """Silence of one stream, while others of its replica advance, that counts as a stall."""
        return self._config.lone_factor * self.limit_s

    def is_overdue(self, waited_s: float, predicted_s: float) -> bool:
        """Whether a first token has taken suspiciously long."""
        config = self._config
        return waited_s > config.doubt_s and waited_s > config.doubt_factor * predicted_s
