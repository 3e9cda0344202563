"""Latencies of complete requests, as series in the order of time.

Two beginnings: `scheduled` counts from when a request should have been sent and is the headline;
`sent` counts from when it was written to the socket. The difference is what this client, its cap
and the connection cost. Requests that failed have no latency here.
"""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from steelyard.lab.outcomes import EventKind, RequestFlag
from steelyard.lab.records import Records

__all__ = ["Gaps", "RequestLatencies", "Window", "gaps", "request_latencies", "worst_gaps_s"]

Floats = npt.NDArray[np.float64]
Bools = npt.NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class Window:
    """The measured part of a run, in seconds since its start: [begin, end)."""

    begin_s: float
    end_s: float

    @property
    def duration_s(self) -> float:
        return self.end_s - self.begin_s

    def holds(self, times_s: Floats) -> Bools:
        """Which of the times lie inside; NaN never does."""
        inside: Bools = (times_s >= self.begin_s) & (times_s < self.end_s)
        return inside


@dataclass(frozen=True, slots=True, eq=False)
class RequestLatencies:
    """One value per complete request of a window, in the order of scheduled times; seconds.

    NaN where a request has no such latency: no first token when the answer came in one piece, no
    time per output token when there was but one event.
    """

    rows: npt.NDArray[np.intp]
    """Of the records."""
    ttft_s: Floats
    """Scheduled to first token, reasoning included."""
    ttft_sent_s: Floats
    ttfa_s: Floats
    """Scheduled to first token of the answer proper, of requests that reasoned before it."""
    e2e_s: Floats
    """Scheduled to the end of the response."""
    e2e_sent_s: Floats
    tpot_s: Floats
    """Time per output token after the first event."""
    output_tokens: Floats


@dataclass(frozen=True, slots=True, eq=False)
class Gaps:
    """Time between tokens of one stream, for all streams, in the order of time.

    An event that brings k tokens a time t after the one before counts as k gaps of t / k. What the
    first event brings besides the first token was never waited for, and has no gap.
    """

    times_s: Floats
    """When the event came; (tokens,)."""
    per_token_s: Floats
    """(tokens,)"""
    owners: npt.NDArray[np.int64]
    """(tokens,) rows of the records."""
    per_event_s: Floats
    """(events,) between events, however many tokens they bring."""


def request_latencies(records: Records, window: Window) -> RequestLatencies:
    """Of the requests that were scheduled in the window."""
    requests = records.requests
    inside = records.is_complete & window.holds(requests["scheduled_s"])
    rows = np.flatnonzero(inside & ~records.flagged(RequestFlag.WARM_UP))
    rows = rows[np.argsort(requests["scheduled_s"][rows], kind="stable")]
    chosen = requests[rows]
    scheduled_s, sent_s = chosen["scheduled_s"], chosen["sent_s"]
    has_reasoned = _begins_with_reasoning(records, rows)
    return RequestLatencies(
        rows=rows,
        ttft_s=chosen["first_token_s"] - scheduled_s,
        ttft_sent_s=chosen["first_token_s"] - sent_s,
        ttfa_s=np.where(has_reasoned, chosen["first_answer_s"] - scheduled_s, np.nan),
        e2e_s=chosen["end_s"] - scheduled_s,
        e2e_sent_s=chosen["end_s"] - sent_s,
        tpot_s=_times_per_token(records, rows),
        output_tokens=chosen["output_tokens"].astype(np.float64),
    )


def gaps(records: Records, window: Window) -> Gaps:
    """Between tokens that came in the window, of complete requests."""
    owners = records.event_owners()
    is_streamed = records.is_complete & ~records.flagged(RequestFlag.NOT_STREAMED)
    is_first = np.ones(len(owners), dtype=bool)
    is_first[1:] = owners[1:] != owners[:-1]
    wanted = ~is_first & is_streamed[owners] & window.holds(records.event_times_s)
    at = np.flatnonzero(wanted)
    at = at[np.argsort(records.event_times_s[at], kind="stable")]
    times_s, tokens = records.event_times_s[at], records.event_tokens[at]
    per_event_s = times_s - records.event_times_s[at - 1]
    return Gaps(
        times_s=np.repeat(times_s, tokens),
        per_token_s=np.repeat(per_event_s / tokens, tokens),
        owners=np.repeat(owners[at], tokens),
        per_event_s=per_event_s,
    )


def worst_gaps_s(records: Records, rows: npt.NDArray[np.intp], quantile: float) -> Floats:
    """For each row, that quantile (nearest rank) of its own gaps per token; 0 where it has none."""
    whole = Window(-np.inf, np.inf)
    found = gaps(records, whole)
    order = np.lexsort((found.per_token_s, found.owners))
    counts = np.bincount(found.owners, minlength=len(records))
    ends = np.cumsum(counts)
    ranks = np.ceil(quantile * counts).astype(np.int64).clip(1)
    worst_s = np.zeros(len(records))
    has_gaps = counts > 0
    picked = (ends - counts + ranks - 1)[has_gaps]
    worst_s[has_gaps] = found.per_token_s[order][picked]
    return worst_s[rows]


def _times_per_token(records: Records, rows: npt.NDArray[np.intp]) -> Floats:
    requests = records.requests[rows]
    tokens = np.concatenate(([0], np.cumsum(records.event_tokens, dtype=np.int64)))
    first = requests["first_event"]
    later = tokens[first + requests["events"]] - tokens[np.minimum(first + 1, len(tokens) - 1)]
    is_known = (requests["events"] > 1) & (later > 0)
    span_s = requests["last_token_s"] - requests["first_token_s"]
    return np.where(is_known, span_s / np.maximum(later, 1), np.nan)


def _begins_with_reasoning(records: Records, rows: npt.NDArray[np.intp]) -> Bools:
    requests = records.requests[rows]
    has_events = requests["events"] > 0
    first = np.where(has_events, requests["first_event"], 0)
    if not len(records.event_kinds):
        return np.zeros(len(rows), dtype=bool)
    reasoned: Bools = has_events & (records.event_kinds[first] == EventKind.REASONING)
    return reasoned
