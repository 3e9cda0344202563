"""What a run looked like from second to second: requests in flight, tokens, failures."""

import itertools
from dataclasses import dataclass

import msgspec
import numpy as np
import numpy.typing as npt

from steelyard.lab.outcomes import Outcome
from steelyard.lab.records import Records
from steelyard.lab.stats.latencies import Window

__all__ = ["Concurrency", "Timeline", "concurrency", "in_system", "timeline", "tokens_per_s"]

Floats = npt.NDArray[np.float64]

_BINS = 200


class Timeline(msgspec.Struct, frozen=True, kw_only=True):
    """Equal bins from the start of the run to the last answer; every list has one value per bin."""

    bin_s: float
    scheduled: list[int]
    """Requests that should have been sent."""
    sent: list[int]
    complete: list[int]
    """Requests that ended well."""
    shed: list[int]
    failed: list[int]
    """Ended in any other way, abandoned ones apart."""
    output_tokens: list[int]
    in_flight: list[float]
    """Requests sent and not ended, on average."""
    in_system: list[float]
    """Requests scheduled and not ended, on average."""
    ttft_p50_s: list[float | None]
    """Of complete requests scheduled in the bin; None where there are none."""
    ttft_max_s: list[float | None]


@dataclass(frozen=True, slots=True)
class Concurrency:
    """Of requests in flight during a window, exact: no bins."""

    mean: float
    peak: int


def timeline(records: Records, end_s: float) -> Timeline:
    """`end_s`: where the last bin ends."""
    requests = records.requests
    edges = np.linspace(0.0, max(end_s, 1e-3), _BINS + 1)
    complete, ended_s = records.is_complete, requests["end_s"]
    is_shed = requests["outcome"] == Outcome.SHED
    is_failed = ~complete & ~is_shed & (requests["outcome"] != Outcome.ABANDONED)
    delivered = _delivered_events(records)
    tokens = np.histogram(
        records.event_times_s[delivered], edges, weights=records.event_tokens[delivered]
    )[0]
    ttft_p50_s, ttft_max_s = _ttft_by_bin(records, edges)
    return Timeline(
        bin_s=float(edges[1]),
        scheduled=_counts(requests["scheduled_s"], edges),
        sent=_counts(requests["sent_s"], edges),
        complete=_counts(ended_s[complete], edges),
        shed=_counts(ended_s[is_shed], edges),
        failed=_counts(ended_s[is_failed], edges),
        output_tokens=[round(count) for count in tokens],
        in_flight=_busy(requests["sent_s"], ended_s, edges),
        in_system=_busy(requests["scheduled_s"], ended_s, edges),
        ttft_p50_s=ttft_p50_s,
        ttft_max_s=ttft_max_s,
    )


def concurrency(records: Records, window: Window) -> Concurrency:
    """Of requests between being sent and their end."""
    begun_s, ended_s = records.requests["sent_s"], records.requests["end_s"]
    was_sent = np.isfinite(begun_s)
    begun_s, ended_s = begun_s[was_sent], ended_s[was_sent]
    inside_s = np.minimum(ended_s, window.end_s) - np.maximum(begun_s, window.begin_s)
    overlaps = inside_s > 0
    if not overlaps.any() or window.duration_s <= 0:
        return Concurrency(0.0, 0)
    times_s = np.concatenate((begun_s[overlaps], ended_s[overlaps]))
    steps = np.repeat([1, -1], int(overlaps.sum()))
    order = np.lexsort((steps, times_s))  # one that ends makes room for one that begins
    running = np.cumsum(steps[order])
    return Concurrency(
        float(inside_s[overlaps].sum() / window.duration_s),
        int(running[times_s[order] < window.end_s].max(initial=0)),
    )


def in_system(records: Records, times_s: Floats) -> npt.NDArray[np.int64]:
    """Requests scheduled and not ended at each of the times."""
    begun = np.sort(records.requests["scheduled_s"])
    ended = np.sort(records.requests["end_s"])
    count: npt.NDArray[np.int64] = np.searchsorted(begun, times_s, side="right") - np.searchsorted(
        ended, times_s, side="right"
    )
    return count


def tokens_per_s(records: Records, window: Window) -> float:
    """Tokens that came in the window, per second of it."""
    inside = _delivered_events(records) & window.holds(records.event_times_s)
    if window.duration_s <= 0:
        return 0.0
    return float(records.event_tokens[inside].sum(dtype=np.int64) / window.duration_s)


def _delivered_events(records: Records) -> npt.NDArray[np.bool_]:
    """Events of streams that did not fail: tokens that somebody can use."""
    outcomes = records.requests["outcome"]
    is_useful = (outcomes == Outcome.COMPLETE) | (outcomes == Outcome.ABANDONED)
    useful: npt.NDArray[np.bool_] = is_useful[records.event_owners()]
    return useful


def _counts(times_s: Floats, edges: Floats) -> list[int]:
    return [int(count) for count in np.histogram(times_s[np.isfinite(times_s)], edges)[0]]


def _busy(begun_s: Floats, ended_s: Floats, edges: Floats) -> list[float]:
    """Mean number of intervals that are open, per bin."""
    was_begun = np.isfinite(begun_s) & np.isfinite(ended_s)
    open_until = _open_time(begun_s[was_begun], edges) - _open_time(ended_s[was_begun], edges)
    return [float(mean) for mean in np.diff(open_until) / np.diff(edges)]


def _open_time(starts_s: Floats, edges: Floats) -> Floats:
    """For each edge e, the sum of e - start over all starts before it."""
    ordered = np.sort(starts_s)
    before = np.searchsorted(ordered, edges)
    sums = np.concatenate(([0.0], np.cumsum(ordered)))
    total: Floats = before * edges - sums[before]
    return total


def _ttft_by_bin(records: Records, edges: Floats) -> tuple[list[float | None], list[float | None]]:
    requests = records.requests[records.is_complete]
    ttft_s = requests["first_token_s"] - requests["scheduled_s"]
    is_known = np.isfinite(ttft_s)
    ttft_s, scheduled_s = ttft_s[is_known], requests["scheduled_s"][is_known]
    order = np.argsort(scheduled_s, kind="stable")
    cuts = np.searchsorted(scheduled_s[order], edges)
    parts = [ttft_s[order][low:high] for low, high in itertools.pairwise(cuts)]
    medians = [float(np.median(part)) if len(part) else None for part in parts]
    maxima = [float(part.max()) if len(part) else None for part in parts]
    return medians, maxima
