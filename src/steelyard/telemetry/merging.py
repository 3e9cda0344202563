"""The metrics of several processes as if they were of one.

Counters and histograms add up, and go on doing so after a process was replaced: what a dead one
had counted, as far as it was heard of, stays in the sum, so that no counter ever falls. Gauges are
those of the living. Who asks the processes, and when, is decided by whoever keeps them.
"""

from prometheus_client import CollectorRegistry
from prometheus_client.exposition import choose_encoder

from steelyard.telemetry._instruments import Instruments, MetricsSnapshot
from steelyard.telemetry.metrics import Metrics

__all__ = ["MergedMetrics"]


class MergedMetrics:
    """`own` are those of this process; the others' come as snapshots."""

    def __init__(self, own: Metrics) -> None:
        self._own = own
        self._gone = Instruments()
        self._living: dict[str, MetricsSnapshot] = {}

    def take(self, process: str, snapshot: MetricsSnapshot) -> None:
        """The present values of a process. Its names must not be used again after `bury`."""
        self._living[process] = snapshot

    def bury(self, process: str) -> None:
        """The process is gone; its totals stay. Does nothing for one never heard of."""
        snapshot = self._living.pop(process, None)
        if snapshot is not None:
            self._gone.absorb_totals(snapshot)

    def exposition(self, accept: str = "") -> tuple[bytes, str]:
        """As `Metrics.exposition`, of all processes together."""
        total = Instruments()
        own = self._own.snapshot()
        total.absorb_totals(own)
        for name, labels, value in own.gauges:
            total.gauge(name, *labels).set(value)
        total.absorb_totals(self._gone.snapshot())
        for snapshot in self._living.values():
            total.absorb_totals(snapshot)
            total.absorb_gauges(snapshot)
        registry = CollectorRegistry()
        registry.register(total)
        encode, content_type = choose_encoder(accept)
        return encode(registry), content_type
