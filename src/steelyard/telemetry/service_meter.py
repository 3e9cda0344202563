"""Counts what happens to the service itself: its settings and its worker processes."""

from typing import Literal

from steelyard.telemetry._instruments import Instruments

__all__ = ["ReloadOutcome", "ServiceMeter"]

ReloadOutcome = Literal["applied", "unchanged", "refused"]


class ServiceMeter:
    """Part of `Metrics`; no method blocks."""

    def __init__(self, instruments: Instruments) -> None:
        self._instruments = instruments
        self._ok = instruments.gauge("steelyard_config_reload_ok")
        self._restart_needed = instruments.gauge("steelyard_config_restart_needed")
        self._workers = instruments.gauge("steelyard_workers")
        self._worker_restarts = instruments.counter("steelyard_worker_restarts_total")
        self._ok.set(1)

    def reloaded(self, outcome: ReloadOutcome, *, restart_needed: bool) -> None:
        """The deployment file was read again."""
        self._instruments.counter("steelyard_config_reloads_total", outcome).add()
        self._ok.set(float(outcome != "refused"))
        if outcome != "refused":
            self._restart_needed.set(float(restart_needed))

    def workers(self, count: int) -> None:
        """So many processes serve the door now."""
        self._workers.set(count)

    def worker_restarted(self) -> None:
        """One of them was replaced."""
        self._worker_restarts.add()
