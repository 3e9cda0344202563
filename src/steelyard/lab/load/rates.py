"""How many requests per second are asked for, as a function of time: steady, ramps, stages, bursts.

A profile is a chain of straight lines. It knows its integral Λ(t), the number of requests expected
until t, and the inverse: `arrivals` places requests with it, `stats` tests the delivered ones.
"""

import re
from typing import Annotated

import msgspec
import numpy as np
import numpy.typing as npt

from steelyard.contract.errors import InvalidRequest

__all__ = ["RateProfile", "Segment", "burst", "parse_profile", "steady"]

Floats = npt.NDArray[np.float64]

_Rate = Annotated[float, msgspec.Meta(ge=0)]
_PIECE = re.compile(r"(?P<first>[\d.]+)(?::(?P<last>[\d.]+))?@(?P<seconds>[\d.]+)")


class Segment(msgspec.Struct, frozen=True):
    """A straight line from one rate to another."""

    duration_s: Annotated[float, msgspec.Meta(gt=0)]
    start_rate: _Rate
    """Requests per second at its beginning."""
    end_rate: _Rate

    @property
    def expected(self) -> float:
        """Requests during the segment."""
        return self.duration_s * (self.start_rate + self.end_rate) / 2


class RateProfile(msgspec.Struct, frozen=True):
    """Segments one after the other, from time zero."""

    segments: Annotated[tuple[Segment, ...], msgspec.Meta(min_length=1)]

    @property
    def duration_s(self) -> float:
        return sum(segment.duration_s for segment in self.segments)

    @property
    def total(self) -> float:
        """Requests expected over the whole duration."""
        return sum(segment.expected for segment in self.segments)

    @property
    def peak_rate(self) -> float:
        return max(max(segment.start_rate, segment.end_rate) for segment in self.segments)

    @property
    def is_steady(self) -> bool:
        return len({rate for s in self.segments for rate in (s.start_rate, s.end_rate)}) == 1

    def rate_at(self, times_s: Floats) -> Floats:
        """Requests per second at each time; zero outside the profile."""
        index, inside_s = self._locate(times_s)
        first, last, duration_s = self._columns()
        rates = first[index] + (last - first)[index] * inside_s / duration_s[index]
        return np.where((times_s >= 0) & (times_s < self.duration_s), rates, 0.0)

    def expected_until(self, times_s: Floats) -> Floats:
        """Λ(t) for each time; flat outside the profile."""
        index, inside_s = self._locate(np.clip(times_s, 0.0, self.duration_s))
        first, last, duration_s = self._columns()
        slope = (last - first) / duration_s
        before = self._cumulative()[index]
        return before + (first[index] + slope[index] * inside_s / 2) * inside_s

    def when_expected(self, counts: Floats) -> Floats:
        """Λ⁻¹: the earliest time by which each number of requests, in [0, total), is expected."""
        cumulative = self._cumulative()
        index = np.searchsorted(cumulative, counts, side="right") - 1
        index = np.clip(index, 0, len(self.segments) - 1)
        first, last, duration_s = self._columns()
        start, slope = first[index], ((last - first) / duration_s)[index]
        # The root of start·t + slope·t²/2 = left, written so that it does not cancel when the
        # slope is small or negative.
        left = counts - cumulative[index]
        root = np.sqrt(np.maximum(start**2 + 2 * slope * left, 0.0))
        with np.errstate(invalid="ignore", divide="ignore"):
            inside_s = np.where(left > 0, 2 * left / (start + root), 0.0)
        return self._starts_s()[index] + np.minimum(inside_s, duration_s[index])

    def _locate(self, times_s: Floats) -> tuple[npt.NDArray[np.intp], Floats]:
        starts_s = self._starts_s()
        index = np.clip(
            np.searchsorted(starts_s, times_s, side="right") - 1, 0, len(self.segments) - 1
        )
        return index, times_s - starts_s[index]

    def _columns(self) -> tuple[Floats, Floats, Floats]:
        table = np.array([(s.start_rate, s.end_rate, s.duration_s) for s in self.segments])
        return table[:, 0], table[:, 1], table[:, 2]

    def _starts_s(self) -> Floats:
        return np.cumsum([0.0, *(s.duration_s for s in self.segments[:-1])])

    def _cumulative(self) -> Floats:
        return np.cumsum([0.0, *(s.expected for s in self.segments[:-1])])


def steady(rate: float, duration_s: float) -> RateProfile:
    """One rate all the time."""
    return RateProfile((Segment(duration_s, rate, rate),))


def burst(
    rate: float, *, factor: float, before_s: float, burst_s: float, after_s: float
) -> RateProfile:
    """`rate`, then `factor` times as much, then `rate` again."""
    return RateProfile(
        (
            Segment(before_s, rate, rate),
            Segment(burst_s, rate * factor, rate * factor),
            Segment(after_s, rate, rate),
        )
    )


def parse_profile(text: str) -> RateProfile:
    """`5@60,20@30` are stages, `1:20@120` is a ramp; rates per second at seconds.

    Raises `InvalidRequest` when it reads otherwise.
    """
    segments = []
    for piece in text.split(","):
        match = _PIECE.fullmatch(piece.strip())
        if match is None:
            raise InvalidRequest(
                f"{piece.strip()!r} is no stage", fix="write RATE@SECONDS or FROM:TO@SECONDS"
            )
        first = float(match["first"])
        last = first if match["last"] is None else float(match["last"])
        segments.append(Segment(float(match["seconds"]), first, last))
    profile = RateProfile(tuple(segments))
    if profile.total <= 0 or any(segment.duration_s <= 0 for segment in segments):
        raise InvalidRequest(f"{text!r} asks for nothing", fix="give rates and seconds above zero")
    return profile
