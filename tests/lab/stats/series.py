"""Records made by hand: requests with known times."""

from collections import Counter
from collections.abc import Sequence

import numpy as np

from steelyard.lab.outcomes import EventKind, Outcome
from steelyard.lab.records import REQUEST_COLUMNS, Records, merge_records, request_array


def request(
    scheduled_s: float,
    event_times_s: Sequence[float] = (),
    *,
    tokens: Sequence[int] | None = None,
    kinds: Sequence[EventKind] | None = None,
    **columns: float,
) -> Records:
    """One request; its tokens come at the given times, its end is the last of them."""
    times = list(event_times_s)
    kinds = list(kinds or [EventKind.ANSWER] * len(times))
    counts = list(tokens or [1] * len(times))
    answers = [time for time, kind in zip(times, kinds, strict=True) if kind is EventKind.ANSWER]
    values = {
        "scheduled_s": scheduled_s,
        "dispatched_s": scheduled_s,
        "released_s": scheduled_s,
        "sent_s": scheduled_s,
        "first_token_s": times[0] if times else np.nan,
        "first_answer_s": answers[0] if answers else np.nan,
        "last_token_s": times[-1] if times else np.nan,
        "end_s": times[-1] if times else scheduled_s,
        "outcome": int(Outcome.COMPLETE),
        "output_tokens": sum(counts),
        "output_usage": sum(counts),
        "output_ids": -1,
        "output_chunks": len(times),
        "output_retokenised": -1,
        "prompt_tokens": -1,
        "cached_tokens": -1,
        "events": len(times),
    } | columns
    return Records(
        request_array([tuple(values.get(name, 0) for name, _, _ in REQUEST_COLUMNS)]),
        np.array(times, dtype=np.float64),
        np.array(counts, dtype=np.uint16),
        np.array([int(kind) for kind in kinds], dtype=np.uint8),
        Counter(),
    )


def run(*requests: Records) -> Records:
    return merge_records(requests)
