"""Everything an audit looks at, and the words in which it answers."""

from dataclasses import dataclass
from typing import Annotated, Literal

import msgspec
import numpy as np
import numpy.typing as npt

from steelyard.lab.client import ClientHealth
from steelyard.lab.load import ClosedLoop, Plan, Workload
from steelyard.lab.records import Records
from steelyard.lab.stats import Window

__all__ = ["Audit", "AuditLimits", "Check", "Evidence", "Status"]

Status = Literal["pass", "warn", "fail", "skip"]
"""`warn`: read the message before you use the numbers. `fail`: do not use them. `skip`: there was
nothing to check."""

_Share = Annotated[float, msgspec.Meta(ge=0, le=1)]


class AuditLimits(msgspec.Struct, frozen=True, kw_only=True):
    """From where on a measurement is not believed. The defaults follow from one demand: that no
    reported percentile is off by more than 2 % or 2 ms because of the client."""

    rate_share: _Share = 0.02
    """Delivered rate against the asked one."""
    process_p: _Share = 0.001
    """Least probability of the delivered arrivals: one honest run in a thousand fails by chance."""
    distortion_share: _Share = 0.02
    distortion_ms: float = 2.0
    """What client lag may add to a percentile: this or that share of it, whichever is more."""
    loop_lag_ms: float = 5.0
    """99th percentile of the event loop's lag: tokens are stamped late by as much."""
    cpu_share: float = 0.9
    """Of a processor, per client process: beyond, it has no reserve for bursts."""
    late_start_ms: float = 50.0
    """First request after its time, while the event loop itself was on time."""
    connection_wait_ms: float = 5.0
    """99th percentile of a request's wait for a connection that was already open."""
    clock_ms: float = 50.0
    """Jump of the wall clock; 500 ppm of drift, the most that time keeping may slew, come on
    top."""
    token_share: _Share = 0.01
    """Disagreement of exact token counts."""
    failed_share: _Share = 0.05
    """Requests that failed, shed ones apart: the latencies of the others are those of survivors."""
    concurrency_share: _Share = 0.03
    """Mean concurrency of a closed loop below the asked one."""


class Check(msgspec.Struct, frozen=True, kw_only=True):
    """One question and its answer."""

    name: str
    status: Status
    message: str
    values: dict[str, float] = {}
    """The numbers behind the message."""

    @classmethod
    def judged(
        cls, name: str, holds: bool, message: str, values: dict[str, float] | None = None
    ) -> "Check":
        """Passed or failed."""
        status: Status = "pass" if holds else "fail"
        return cls(name=name, status=status, message=message, values=values or {})


class Audit(msgspec.Struct, frozen=True, kw_only=True):
    """Whether a run may be believed."""

    is_valid: bool
    reasons: list[str]
    """Why it may not: the messages of the failed checks, without those that merely follow from
    others."""
    labels: list[str]
    """What is true of the run, and no fault of the measurement: `saturated`, `interrupted`."""
    checks: list[Check]

    def check(self, name: str) -> Check:
        """Raises `KeyError` when there is none of this name."""
        for check in self.checks:
            if check.name == name:
                return check
        raise KeyError(name)


@dataclass(frozen=True, slots=True, eq=False)
class Evidence:
    """A finished run."""

    workload: Workload
    plan: Plan
    records: Records
    health: tuple[ClientHealth, ...]
    window: Window
    is_settled: bool
    """Whether the window begins in a steady state that was found in the data."""
    is_interrupted: bool = False
    sheds_on_purpose: bool = False
    """Overload is the point of the run: requests that are turned away are no failures."""

    @property
    def closed_loop(self) -> ClosedLoop | None:
        arrivals = self.workload.arrivals
        return arrivals if isinstance(arrivals, ClosedLoop) else None

    @property
    def concurrency_cap(self) -> int | None:
        """Of an open loop; None where none was asked for."""
        return getattr(self.workload.arrivals, "concurrency_cap", None)

    @property
    def openings(self) -> npt.NDArray[np.void]:
        """First requests of sessions: those whose times the plan decides."""
        opening: npt.NDArray[np.void] = self.records.requests[self.records.requests["turn"] == 0]
        return opening
