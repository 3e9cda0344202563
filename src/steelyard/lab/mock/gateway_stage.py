"""A gateway in front of the engine: one event after the other, each taking the same time.

Sits between `serving` and the sinks. Below its capacity it adds its time to every event; above it,
events queue here while the engine's own times stay short.
"""

from steelyard.lab.mock.serving import Batch, Sink
from steelyard.lab.mock.timers import Timers

__all__ = ["GatewayStage"]


class GatewayStage:
    """A single server with a constant service time, shared by all streams."""

    def __init__(self, timers: Timers, per_event_us: float) -> None:
        self._timers = timers
        self._per_event_ns = round(per_event_us * 1000)
        self._free_ns = 0

    def in_front_of(self, sink: Sink) -> Sink:
        """A sink that passes on to `sink` when the gateway gets to it."""
        return sink if self._per_event_ns == 0 else _Forwarding(self, sink)

    def enqueue(self, batch: Batch, sink: Sink) -> None:
        """Forward `batch` once everything before it was forwarded."""
        self._free_ns = max(self._free_ns, batch.due_ns) + self._per_event_ns
        self._timers.at(self._free_ns, _deliver, (batch, sink))


class _Forwarding:
    def __init__(self, stage: GatewayStage, sink: Sink) -> None:
        self._stage = stage
        self._sink = sink

    def take(self, batch: Batch) -> None:
        self._stage.enqueue(batch, self._sink)


def _deliver(what: tuple[Batch, Sink], due_ns: int) -> None:
    batch, sink = what
    sink.take(Batch(batch.first, batch.count, due_ns, batch.is_last))
