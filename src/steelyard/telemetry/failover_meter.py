"""Counts what failover does: requests that moved, silences it cost, replicas out of rotation."""

from typing import Literal

from steelyard.telemetry._instruments import Instruments

__all__ = ["FailoverMeter", "HedgeOutcome", "Stage"]

Stage = Literal["waiting", "streaming"]
"""Before or after a request's first token."""
HedgeOutcome = Literal["won", "lost"]

_STATES = ("absent", "ejected", "healthy", "returning", "suspect")


class FailoverMeter:
    """Part of `Metrics`; no method blocks."""

    def __init__(self, instruments: Instruments) -> None:
        self._instruments = instruments
        self._gap = instruments.histogram("steelyard_failover_gap_seconds")
        self._budget_refusals = instruments.counter("steelyard_failover_budget_refusals_total")
        self._quarantined = instruments.counter("steelyard_quarantined_requests_total")
        self._replicas: set[str] = set()

    def moved(self, stage: Stage, reason: str, gap_s: float) -> None:
        """A request goes on at another attempt, `gap_s` after the last sign of life."""
        self._instruments.counter("steelyard_failover_moves_total", stage, reason).add()
        self._gap.observe(gap_s)

    def given_up(self, stage: Stage, reason: str) -> None:
        """A request that a replica had failed ended with an error; `reason` is its code."""
        self._instruments.counter("steelyard_failover_given_up_total", stage, reason).add()

    def budget_refused(self) -> None:
        """A retry was not allowed."""
        self._budget_refusals.add()

    def hedged(self, outcome: HedgeOutcome) -> None:
        """A second replica was asked; `won` when its answer came first."""
        self._instruments.counter("steelyard_failover_hedges_total", outcome).add()

    def quarantined(self) -> None:
        """A request was refused because replicas died of it, or of its like."""
        self._quarantined.add()

    def shed(self, priority: int) -> None:
        """A request was refused because it would have waited too long."""
        self._instruments.counter("steelyard_shed_requests_total", str(priority)).add()

    def replica_is(self, replica: str, state: str) -> None:
        """A replica's health, as of now."""
        self._replicas.add(replica)
        for name in _STATES:
            gauge = self._instruments.gauge("steelyard_replica_health", replica, name)
            gauge.set(float(name == state))

    def ejected(self, replica: str, reason: str) -> None:
        """A replica was taken out of rotation."""
        self._instruments.counter("steelyard_replica_ejections_total", replica, reason).add()

    def replica_in_flight(self, replica: str, requests: int) -> None:
        """How many requests it has now."""
        self._instruments.gauge("steelyard_replica_in_flight", replica).set(requests)

    def forget_replica(self, replica: str) -> None:
        """A replica is gone for good: its gauges go, what was counted stays."""
        self._replicas.discard(replica)
        for name in ("steelyard_replica_health", "steelyard_replica_in_flight"):
            self._instruments.keep_gauges(name, self._replicas)
