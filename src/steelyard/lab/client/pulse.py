"""Watches the client itself while it measures: is it late, is it out of breath, did a clock jump?

Everything a client measures is late by as much as its event loop is. `audit` judges the numbers.
"""

import math
import resource
import time
from array import array
from collections.abc import Callable

import msgspec

from steelyard.lab.client.pacing import Pacer
from steelyard.lab.client.pool import PoolCounts

__all__ = ["ClientHealth", "Pulse"]

_BEAT_S = 0.010
_CLOCK_EVERY_BEATS = 10


class ClientHealth(msgspec.Struct, frozen=True, kw_only=True):
    """How one client process fared."""

    worker: int
    wall_s: float
    cpu_s: float
    """Processor time of the process, user and system."""
    waited_for_cpu: int
    """Involuntary context switches: the kernel gave the processor to somebody else."""
    loop_lags_s: list[float]
    """By how much the event loop was late, every 10 ms."""
    clock_drift_s: float
    """Largest difference between the advance of the wall clock and the monotonic clock."""
    connections_opened: int
    busy_connections_peak: int
    requests_in_flight_peak: int
    """As the driver counts them: from leaving the cap to their end."""
    token_events: int

    @property
    def cpu_share(self) -> float:
        """Of one processor."""
        return self.cpu_s / self.wall_s if self.wall_s > 0 else 0.0


class Pulse:
    """Belongs to one worker; feels its own loop through a precise timer."""

    def __init__(self, *, unix_now: Callable[[], float] = time.time) -> None:
        self._unix_now = unix_now
        self._lags_s = array("f")
        self._begun_s = math.nan
        self._cpu_begun_s = 0.0
        self._switches_begun = 0
        self._clock_begun_s = 0.0
        self._drift_s = 0.0

    def begin(self, pacer: Pacer) -> None:
        self._begun_s = time.monotonic()
        self._cpu_begun_s = time.process_time()
        self._switches_begun = _involuntary_switches()
        self._clock_begun_s = self._unix_now() - time.monotonic()
        pacer.every(_BEAT_S, self._beat)

    def health(
        self, *, worker: int, pool: PoolCounts, in_flight_peak: int, token_events: int
    ) -> ClientHealth:
        """Since `begin`."""
        self._check_clock()
        return ClientHealth(
            worker=worker,
            wall_s=time.monotonic() - self._begun_s,
            cpu_s=time.process_time() - self._cpu_begun_s,
            waited_for_cpu=_involuntary_switches() - self._switches_begun,
            loop_lags_s=list(self._lags_s),
            clock_drift_s=self._drift_s,
            connections_opened=pool.opened,
            busy_connections_peak=pool.busy_peak,
            requests_in_flight_peak=in_flight_peak,
            token_events=token_events,
        )

    @property
    def worst_lag_s(self) -> float:
        """Of the last second or so; for people who watch."""
        return max(self._lags_s[-100:], default=0.0)

    def _beat(self, late_s: float) -> None:
        self._lags_s.append(late_s)
        if len(self._lags_s) % _CLOCK_EVERY_BEATS == 0:
            self._check_clock()

    def _check_clock(self) -> None:
        drift_s = self._unix_now() - time.monotonic() - self._clock_begun_s
        if abs(drift_s) > abs(self._drift_s):
            self._drift_s = drift_s


def _involuntary_switches() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_nivcsw
