"""Overload: who is told at once that it would wait too long, the least important first.

Judged by the predicted wait, the request's own prompt apart: a long prompt is not refused for being
long. Refusing early keeps queues short, so that what is accepted is still worth its answer.
"""

from steelyard.contract.errors import Overloaded
from steelyard.policies.config import SheddingConfig

__all__ = ["Shedding"]


class Shedding:
    """Limits by class."""

    def __init__(self, config: SheddingConfig) -> None:
        self._config = config

    def limit_s(self, priority: int) -> float:
        """The longest predicted wait with which a request of this priority is accepted."""
        config = self._config
        steps = min(max(priority, -config.max_steps), config.max_steps)
        return config.max_wait_s * config.class_factor**steps

    def check(self, priority: int, predicted_wait_s: float) -> None:
        """Raise `Overloaded`, with a delay after which there should be room, if it is too long."""
        limit_s = self.limit_s(priority)
        if predicted_wait_s > limit_s:
            raise Overloaded(
                "the server is full: more is waiting than can be begun in time",
                delay_s=min(max(predicted_wait_s - limit_s, 1.0), 60.0),
                fix="Retry after the given delay.",
            )
