"""Turns finished exchanges into records, with tokens counted in every way there is.

    usage          what the server says in the end
    ids            token ids that came with the events
    chunks         events that brought something
    retokenised    the text, counted by a tokenizer of ours

Usage is believed first, then ids, then the number of events. `audit` compares them.
"""

from array import array
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from steelyard.lab.client.exchange import Exchange
from steelyard.lab.outcomes import EventKind, Outcome, RequestFlag
from steelyard.lab.records import Records, merge_records, request_array

__all__ = ["Recorder", "Tally", "event_tokens"]

_ROWS_PER_BLOCK = 1024
_MOST_MESSAGES = 50
_UNKNOWN = -1
_NAN = float("nan")


@dataclass(slots=True)
class Tally:
    """So far; for people who watch."""

    complete: int = 0
    shed: int = 0
    failed: int = 0
    tokens: int = 0
    """Of complete answers."""


class Recorder:
    """Collects the exchanges of one worker."""

    def __init__(self, *, worker: int, start_s: float) -> None:
        """`start_s`: what becomes time zero."""
        self._worker = worker
        self._start_s = start_s
        self._rows: list[tuple[Any, ...]] = []
        self._blocks: list[Any] = []
        self._times = array("d")
        self._tokens = array("H")
        self._kinds = array("B")
        self._messages: Counter[tuple[Outcome, str]] = Counter()
        self._texts: dict[int, str] = {}
        self._row_count = 0
        self._recent_ttfts_s: list[float] = []
        self.tally = Tally()

    def __len__(self) -> int:
        return self._row_count

    def add(self, exchange: Exchange, *, counted_text: str | None = None) -> None:
        """Put a finished exchange on record.

        `counted_text`: what it answered, to be counted again by `records`. None: is not.
        """
        outcome = exchange.outcome
        assert outcome is not None, "the exchange still runs"
        tokens, flags = event_tokens(exchange)
        first_event = len(self._times)
        if outcome is not Outcome.COMPLETE and exchange.message:
            self._note(outcome, exchange.message)
        if counted_text is not None:
            self._texts[self._row_count] = counted_text
        start_s = self._start_s
        events = [
            (time_s - start_s, count, kind)
            for time_s, count, kind in tokens
            if count > 0  # an event may only flush text that earlier tokens had begun
        ]
        self._times.extend(event[0] for event in events)
        self._tokens.extend(min(event[1], 65535) for event in events)
        self._kinds.extend(event[2] for event in events)
        self._rows.append(self._row(exchange, outcome, events, flags, first_event))
        self._row_count += 1
        self._count(outcome, events)
        if outcome is Outcome.COMPLETE and events:
            self._recent_ttfts_s.append(events[0][0] + start_s - exchange.scheduled_s)
        if len(self._rows) >= _ROWS_PER_BLOCK:
            self._pack()

    @property
    def token_events(self) -> int:
        """Events with tokens on record."""
        return len(self._times)

    def take_recent_ttfts_s(self) -> list[float]:
        """Of the answers completed since the last call, a hundred at most."""
        recent, self._recent_ttfts_s = self._recent_ttfts_s, []
        return recent[-100:]

    def records(self, count_tokens: Callable[[str], int] | None = None) -> Records:
        """Everything so far. `count_tokens` counts the kept texts again. None: nothing does."""
        self._pack()
        requests = np.concatenate(self._blocks) if self._blocks else Records.empty().requests
        if count_tokens is not None:
            for row, text in self._texts.items():
                requests["output_retokenised"][row] = count_tokens(text)
        unordered = Records(
            requests,
            np.array(self._times, dtype=np.float64),
            np.array(self._tokens, dtype=np.uint16),
            np.array(self._kinds, dtype=np.uint8),
            Counter(dict(self._messages.most_common(_MOST_MESSAGES))),
        )
        return merge_records([unordered])

    def _row(
        self,
        exchange: Exchange,
        outcome: Outcome,
        events: list[tuple[float, int, EventKind]],
        flags: RequestFlag,
        first_event: int,
    ) -> tuple[Any, ...]:
        """In the order of `REQUEST_COLUMNS`."""
        start_s, usage = self._start_s, exchange.usage
        is_streamed = not exchange.flags & RequestFlag.NOT_STREAMED
        times = [event[0] for event in events] if is_streamed else []
        answers = [event[0] for event in events if event[2] is EventKind.ANSWER]
        by_usage = _known(None if usage is None else usage.completion_tokens)
        by_ids = sum(exchange.counts) if _are_known(exchange.counts) else _UNKNOWN
        best = next((n for n in (by_usage, by_ids) if n != _UNKNOWN), exchange.chunks)
        return (
            exchange.session,
            exchange.turn,
            self._worker,
            exchange.scheduled_s - start_s,
            exchange.dispatched_s - start_s,
            exchange.released_s - start_s,
            exchange.sent_s - start_s,
            exchange.first_byte_s - start_s,
            times[0] if times else _NAN,
            answers[0] if answers and is_streamed else _NAN,
            times[-1] if times else _NAN,
            exchange.end_s - start_s,
            int(outcome),
            exchange.http_status,
            exchange.retry_after_s,
            exchange.prompt_asked,
            _known(None if usage is None else usage.prompt_tokens),
            _known(None if usage is None else usage.cached),
            exchange.output_asked,
            best,
            by_usage,
            by_ids,
            exchange.chunks,
            _UNKNOWN,
            _known(None if usage is None else usage.reasoning),
            exchange.comments,
            int(exchange.flags | flags),
            first_event,
            len(events),
        )

    def _count(self, outcome: Outcome, events: list[tuple[float, int, EventKind]]) -> None:
        tally = self.tally
        if outcome is Outcome.COMPLETE:
            tally.complete += 1
            tally.tokens += sum(event[1] for event in events)
        elif outcome is Outcome.SHED:
            tally.shed += 1
        else:
            tally.failed += 1

    def _note(self, outcome: Outcome, message: str) -> None:
        if len(self._messages) < 20 * _MOST_MESSAGES or (outcome, message) in self._messages:
            self._messages[outcome, message] += 1

    def _pack(self) -> None:
        if self._rows:
            self._blocks.append(request_array(self._rows))
            self._rows = []


def event_tokens(
    exchange: Exchange,
) -> tuple[list[tuple[float, int, EventKind]], RequestFlag]:
    """Time, tokens and kind of every event that brought tokens, and what is to be said of them.

    Where the server does not say which tokens came when, every event is taken as one token; if its
    usage then shows more tokens than events, they are shared out by the events' lengths.
    """
    times, kinds = list(exchange.times), list(exchange.kinds)
    if _are_known(exchange.counts):
        counts = list(exchange.counts)
        flags = RequestFlag(0)
    else:
        total = None if exchange.usage is None else exchange.usage.completion_tokens
        widths = list(exchange.widths)
        if total == len(times) + 1 and exchange.last_event_s > (times or [0.0])[-1]:
            # The end token: its event brought the finish reason, but no text.
            times.append(exchange.last_event_s)
            kinds.append(EventKind.ANSWER)
            widths.append(1)
        counts = [1] * len(times)
        flags = RequestFlag(0)
        # An end token without an event of its own has no time; nothing was bundled then.
        is_silent_end = total == len(times) + 1 and exchange.finish_reason == "stop"
        if total is not None and total > len(times) > 0 and not is_silent_end:
            counts = _shared_out(total, widths)
            flags = RequestFlag.ESTIMATED
    if any(count > 1 for count in counts):
        flags |= RequestFlag.BUNDLED
    return list(zip(times, counts, kinds, strict=True)), flags


def _are_known(counts: list[int]) -> bool:
    return bool(counts) and _UNKNOWN not in counts


def _known(count: int | None) -> int:
    return _UNKNOWN if count is None else count


def _shared_out(total: int, widths: list[int]) -> list[int]:
    """At least one token per event, the rest in proportion to widths (largest remainders)."""
    spare = total - len(widths)
    exact = np.array(widths, dtype=np.float64) * (spare / sum(widths))
    parts = np.floor(exact).astype(np.int64)
    order = np.argsort(parts - exact, kind="stable")
    parts[order[: spare - int(parts.sum())]] += 1
    return [int(part) + 1 for part in parts]
