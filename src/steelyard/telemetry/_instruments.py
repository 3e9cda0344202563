"""Counters, gauges and histograms that cost one addition on the hot path.

prometheus_client keeps the registry and writes the exposition. Its own instruments are not used:
they lock on every call, cannot weigh an observation, do not bound labels and walk all buckets
(0.8 µs per observation, where a token in flight may cost 1 µs in all).

One thread, the event loop's, changes and collects values. A change made by another thread may be
lost; nothing worse happens.
"""

from bisect import bisect_left
from collections.abc import Callable, Collection, Iterator
from typing import Generic, TypeVar

import msgspec
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily
from prometheus_client.metrics_core import Metric

from steelyard.telemetry.catalogue import CATALOGUE, Kind, Merge, MetricSpec

__all__ = [
    "MAX_LABEL_VALUES",
    "OTHER",
    "Counter",
    "Gauge",
    "Histogram",
    "Instruments",
    "MetricsSnapshot",
]

MAX_LABEL_VALUES = 1000
"""Distinct values of one label; later ones are counted under `OTHER`."""
OTHER = "other"
_MAX_LABEL_CHARS = 128


class Counter:
    """One series that only grows."""

    __slots__ = ("value",)

    def __init__(self) -> None:
        self.value = 0.0

    def add(self, amount: float = 1.0) -> None:
        """Grow by `amount` ≥ 0."""
        self.value += amount


class Gauge:
    """One series that holds the newest value."""

    __slots__ = ("value",)

    def __init__(self) -> None:
        self.value = 0.0

    def set(self, value: float) -> None:
        self.value = value

    def add(self, amount: float) -> None:
        self.value += amount


class Histogram:
    """One distribution: how many values each bucket holds, and the sum of all."""

    __slots__ = ("_bounds", "_counts", "sum")

    def __init__(self, bounds: tuple[float, ...]) -> None:
        self._bounds = bounds
        self._counts = [0] * (len(bounds) + 1)
        self.sum = 0.0

    def observe(self, value: float, times: int = 1) -> None:
        """Count `value` as seen `times` times."""
        self._counts[bisect_left(self._bounds, value)] += times
        self.sum += value * times

    @property
    def count(self) -> int:
        return sum(self._counts)

    def counts(self) -> tuple[int, ...]:
        """Per bucket, the last one above all bounds."""
        return tuple(self._counts)

    def absorb(self, counts: tuple[int, ...], total: float) -> None:
        """Add the values that another histogram with the same bounds has counted."""
        assert len(counts) == len(self._counts), "histograms of one metric have equal bounds"
        self._counts = [a + b for a, b in zip(self._counts, counts, strict=True)]
        self.sum += total

    def cumulative(self) -> list[tuple[str, float]]:
        """Per upper bound, how many values are not above it; ends with `+Inf`."""
        total = 0
        rows: list[tuple[str, float]] = []
        for bound, count in zip((*map(str, self._bounds), "+Inf"), self._counts, strict=True):
            total += count
            rows.append((bound, float(total)))
        return rows


class MetricsSnapshot(msgspec.Struct, frozen=True):
    """All values of one process at one moment, fit to be sent to another."""

    counters: list[tuple[str, tuple[str, ...], float]]
    """Name, label values, value."""
    gauges: list[tuple[str, tuple[str, ...], float]]
    histograms: list[tuple[str, tuple[str, ...], tuple[int, ...], float]]
    """Name, label values, counts per bucket, sum."""


SeriesT = TypeVar("SeriesT", Counter, Gauge, Histogram)


class Instruments:
    """Every series of every metric in the catalogue. A prometheus_client collector."""

    def __init__(self) -> None:
        self._bounds = _LabelBounds()
        self._counters: dict[str, _Family[Counter]] = {}
        self._gauges: dict[str, _Family[Gauge]] = {}
        self._histograms: dict[str, _Family[Histogram]] = {}
        for spec in CATALOGUE:
            if spec.kind is Kind.COUNTER:
                self._counters[spec.name] = _Family(spec, self._bounds, Counter)
            elif spec.kind is Kind.GAUGE:
                self._gauges[spec.name] = _Family(spec, self._bounds, Gauge)
            else:
                new = _histogram_with(spec.buckets)
                self._histograms[spec.name] = _Family(spec, self._bounds, new)

    def label(self, label: str, value: str) -> str:
        """The value under which the series of `value` are kept: itself or `OTHER`."""
        return self._bounds.bound(label, value)

    def counter(self, name: str, *labels: str) -> Counter:
        """The series of these label values, in the catalogue's order; kept for good."""
        return self._counters[name].series(labels)

    def gauge(self, name: str, *labels: str) -> Gauge:
        """As `counter`; `keep_gauges` may remove it again."""
        return self._gauges[name].series(labels)

    def histogram(self, name: str, *labels: str) -> Histogram:
        """As `counter`."""
        return self._histograms[name].series(labels)

    def keep_gauges(self, name: str, first_labels: Collection[str]) -> None:
        """Remove the series of whatever is gone: those whose first label is not among these."""
        self._gauges[name].keep(first_labels)

    def snapshot(self) -> MetricsSnapshot:
        """A copy of all values."""
        return MetricsSnapshot(
            [(n, k, s.value) for n, f in self._counters.items() for k, s in f.by_labels.items()],
            [(n, k, s.value) for n, f in self._gauges.items() for k, s in f.by_labels.items()],
            [
                (name, labels, series.counts(), series.sum)
                for name, family in self._histograms.items()
                for labels, series in family.by_labels.items()
            ],
        )

    def absorb_totals(self, snapshot: MetricsSnapshot) -> None:
        """Add another process's counters and histograms, which outlive it."""
        for name, labels, value in snapshot.counters:
            self.counter(name, *labels).add(value)
        for name, labels, counts, total in snapshot.histograms:
            self.histogram(name, *labels).absorb(counts, total)

    def absorb_gauges(self, snapshot: MetricsSnapshot) -> None:
        """Merge another process's gauges, each as its metric wants it."""
        for name, labels, value in snapshot.gauges:
            family = self._gauges[name]
            is_new = labels not in family.by_labels
            if family.spec.merge is Merge.OWN:
                continue
            gauge = family.series(labels)
            if family.spec.merge is Merge.LEAST and not is_new:
                gauge.set(min(gauge.value, value))
            else:
                gauge.add(value)

    def collect(self) -> Iterator[Metric]:
        """All metrics with their present values, as prometheus_client wants them."""
        for spec in CATALOGUE:
            if spec.kind is Kind.COUNTER:
                yield _counter_metric(self._counters[spec.name])
            elif spec.kind is Kind.GAUGE:
                yield _gauge_metric(self._gauges[spec.name])
            else:
                yield _histogram_metric(self._histograms[spec.name])


class _LabelBounds:
    """Keeps the values of each label few and short, whatever clients send.

    One series per made-up model name would fill our memory and then the Prometheus server's.
    """

    def __init__(self) -> None:
        self._seen: dict[str, set[str]] = {}

    def bound(self, label: str, value: str) -> str:
        """`value` made fit to be a label value, or `OTHER` when there are too many."""
        value = value[:_MAX_LABEL_CHARS].encode("utf-8", "replace").decode("utf-8")
        seen = self._seen.setdefault(label, set())
        if value in seen:
            return value
        if len(seen) >= MAX_LABEL_VALUES:
            return OTHER
        seen.add(value)
        return value


class _Family(Generic[SeriesT]):
    """The series of one metric by their label values."""

    def __init__(self, spec: MetricSpec, bounds: _LabelBounds, new: Callable[[], SeriesT]) -> None:
        self.spec = spec
        self._bounds = bounds
        self._new: Callable[[], SeriesT] = new
        self.by_labels: dict[tuple[str, ...], SeriesT] = {}
        if not spec.labels:
            self.series(())

    def series(self, labels: tuple[str, ...]) -> SeriesT:
        if (known := self.by_labels.get(labels)) is not None:
            return known
        bounded = tuple(map(self._bounds.bound, self.spec.labels, labels))
        assert len(bounded) == len(labels) == len(self.spec.labels), f"labels of {self.spec.name}"
        return self.by_labels.setdefault(bounded, self._new())

    def keep(self, first_labels: Collection[str]) -> None:
        for labels in [key for key in self.by_labels if key[0] not in first_labels]:
            del self.by_labels[labels]


def _histogram_with(bounds: tuple[float, ...]) -> Callable[[], Histogram]:
    return lambda: Histogram(bounds)


def _counter_metric(family: _Family[Counter]) -> Metric:
    spec = family.spec
    metric = CounterMetricFamily(spec.name, spec.help, labels=spec.labels)
    for labels, series in family.by_labels.items():
        metric.add_metric(labels, series.value)
    return metric


def _gauge_metric(family: _Family[Gauge]) -> Metric:
    spec = family.spec
    metric = GaugeMetricFamily(spec.name, spec.help, labels=spec.labels, unit=spec.unit)
    for labels, series in family.by_labels.items():
        metric.add_metric(labels, series.value)
    return metric


def _histogram_metric(family: _Family[Histogram]) -> Metric:
    spec = family.spec
    metric = HistogramMetricFamily(spec.name, spec.help, labels=spec.labels, unit=spec.unit)
    for labels, series in family.by_labels.items():
        metric.add_metric(labels, series.cumulative(), sum_value=series.sum)
    return metric
