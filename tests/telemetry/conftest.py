"""Shared tools: metrics on a virtual clock, and their values as Prometheus would read them."""

import pytest
from prometheus_client.parser import text_string_to_metric_families

from steelyard.contract import VirtualClock
from steelyard.telemetry import Metrics


class Scrape:
    """The values of one scrape."""

    def __init__(self, metrics: Metrics) -> None:
        text, _ = metrics.exposition()
        self.samples = [
            sample
            for family in text_string_to_metric_families(text.decode())
            for sample in family.samples
        ]

    def value(self, name: str, /, **labels: str) -> float:
        """The sum over all series with these labels; 0 when there is none."""
        return sum(
            sample.value
            for sample in self.samples
            if sample.name == f"steelyard_{name}" and labels.items() <= sample.labels.items()
        )

    def labels(self, name: str, label: str) -> set[str]:
        """All values that a label of this metric has."""
        return {s.labels[label] for s in self.samples if s.name == f"steelyard_{name}"}


@pytest.fixture
def clock() -> VirtualClock:
    return VirtualClock(start_s=100.0)


@pytest.fixture
def metrics(clock: VirtualClock) -> Metrics:
    return Metrics(clock=clock, models=["small"])
