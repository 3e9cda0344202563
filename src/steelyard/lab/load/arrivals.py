"""When requests are sent: by the clock (open loop), by a trace, or when a user is free (closed).

What is sent is decided by `content`; `plan` brings both together.

An open loop is a renewal process in *operational time* u = Λ(t), in which one request is expected
per unit (time-rescaling theorem; Brown et al., "The time-rescaling theorem and its application to
neural spike train data analysis", 2002). n points are placed by n + 1 gamma-distributed gaps,
scaled to fill the duration. With cv = 1 that is a Poisson process conditioned on its count (order
statistics of uniforms), so the asked rate is met exactly, without making gaps more regular.
"""

from typing import Annotated

import msgspec
import numpy as np
import numpy.typing as npt

from steelyard.contract.errors import InvalidRequest
from steelyard.lab.load.randomness import Streams
from steelyard.lab.load.rates import RateProfile

__all__ = ["MOST_REQUESTS", "Arrivals", "ClosedLoop", "OpenLoop", "TraceReplay", "start_times"]

Floats = npt.NDArray[np.float64]

MOST_REQUESTS = 20_000_000
"""Of one run: what a plan of them takes fits a small machine, and a day at 200/s fits in."""


class OpenLoop(msgspec.Struct, frozen=True, tag="open"):
    """Requests leave by the clock, whatever the server does."""

    profile: RateProfile
    cv: Annotated[float, msgspec.Meta(ge=0, le=20)] = 1.0
    """Coefficient of variation of the gaps: 0 constant, 1 Poisson, above 1 bursty."""
    concurrency_cap: Annotated[int, msgspec.Meta(ge=1)] | None = None
    """Requests in flight at most; later ones wait in the client, and their wait counts.
    None: no limit."""


class ClosedLoop(msgspec.Struct, frozen=True, tag="closed"):
    """A fixed number of users, each of whom sends when the last answer is complete."""

    concurrency: Annotated[int, msgspec.Meta(ge=1)]
    duration_s: Annotated[float, msgspec.Meta(gt=0)] | None = None
    """No session begins later. None: the number of sessions decides."""
    sessions: Annotated[int, msgspec.Meta(ge=1)] | None = None
    """Sessions at most. None: the duration decides."""
    ramp_s: Annotated[float, msgspec.Meta(ge=0)] = 0.0
    """Users begin one after the other over this time."""


class TraceReplay(msgspec.Struct, frozen=True, tag="replay"):
    """Requests leave when the trace says so."""

    speed: Annotated[float, msgspec.Meta(gt=0)] = 1.0
    """2 replays an hour in half an hour."""
    skip_s: Annotated[float, msgspec.Meta(ge=0)] = 0.0
    """Trace time that is left out at the beginning."""
    duration_s: Annotated[float, msgspec.Meta(gt=0)] | None = None
    """Length of the replay, in seconds of the run. None: to the end of the trace."""
    concurrency_cap: Annotated[int, msgspec.Meta(ge=1)] | None = None
    """As in `OpenLoop`."""


Arrivals = OpenLoop | ClosedLoop | TraceReplay


def start_times(arrivals: OpenLoop, streams: Streams) -> Floats:
    """Seconds from the start of the run, ascending, all below the profile's duration.

    Raises `InvalidRequest` when there are too many to be planned.
    """
    profile = arrivals.profile
    if not profile.total <= MOST_REQUESTS:
        raise InvalidRequest(
            f"{profile.total:.3g} requests are more than a run can have ({MOST_REQUESTS:,})",
            fix="lower the rate, or make it shorter",
        )
    count = max(round(profile.total), 1)
    if arrivals.cv == 0:
        operational = np.arange(count) * (profile.total / count)
    else:
        shape = arrivals.cv**-2
        gaps = streams.generator("gaps").gamma(shape, size=count + 1)
        # Gaps of very bursty processes underflow to zero together; any scale does then.
        operational = np.cumsum(gaps)[:-1] * (profile.total / max(gaps.sum(), 1e-300))
    times_s = profile.when_expected(np.minimum(operational, np.nextafter(profile.total, 0)))
    # Where a rate rises from zero, rounding may turn times that nearly coincide around.
    return np.maximum.accumulate(times_s)
