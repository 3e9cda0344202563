"""What happened to every request of a run, in columns.

A request is one row of `requests`; its token events stand side by side in the event columns, from
`first_event` on. Times are seconds since the start of the run (not of the request); NaN means that
something did not happen, -1 that a count is not known. A million token events take about 11 MB.
`recorder` writes records, `stats` reads them.
"""

import io
import zipfile
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import numpy.typing as npt

from steelyard.contract.errors import InvalidRequest
from steelyard.lab.outcomes import Outcome, RequestFlag

__all__ = [
    "REQUEST_COLUMNS",
    "Records",
    "load_records",
    "merge_records",
    "request_array",
    "save_records",
]

REQUEST_COLUMNS: tuple[tuple[str, str, str], ...] = (
    ("session", "i4", "session of the plan"),
    ("turn", "i2", "turn within the session, from 0"),
    ("worker", "i2", "client process that sent it"),
    ("scheduled_s", "f8", "when it should have been sent"),
    ("dispatched_s", "f8", "when the client turned to it, its body ready"),
    ("released_s", "f8", "when it had a place under the asked concurrency cap"),
    ("sent_s", "f8", "when it was written to an open connection"),
    ("first_byte_s", "f8", "first byte of the response"),
    ("first_token_s", "f8", "first event with a token, reasoning included"),
    ("first_answer_s", "f8", "first event with a token of the answer proper"),
    ("last_token_s", "f8", "last event with a token"),
    ("end_s", "f8", "end of the response, or of the patience with it"),
    ("outcome", "u1", "number of an `Outcome`"),
    ("http_status", "i2", "0: no response"),
    ("retry_after_s", "f4", "what a refusal asked for"),
    ("prompt_asked", "i4", "tokens that the prompt should have, conversation included"),
    ("prompt_tokens", "i4", "tokens of the prompt by the server's usage"),
    ("cached_tokens", "i4", "of those, found in the prefix cache"),
    ("output_asked", "i4", "most tokens of the answer"),
    ("output_tokens", "i4", "tokens by the best count there is"),
    ("output_usage", "i4", "tokens by the server's usage"),
    ("output_ids", "i4", "token ids received"),
    ("output_chunks", "i4", "events with text or tokens"),
    ("output_retokenised", "i4", "tokens of the received text by a tokenizer of ours"),
    ("reasoning_tokens", "i4", "of the output, reasoning"),
    ("comments", "i4", "keep-alive comments"),
    ("flags", "u1", "`RequestFlag` bits"),
    ("first_event", "i8", "row of its first event"),
    ("events", "i4", "how many events it has"),
)
"""Name, type and meaning of every column of `requests`."""

_DTYPE = np.dtype([(name, kind) for name, kind, _ in REQUEST_COLUMNS])
_VERSION = 1


@dataclass(frozen=True, slots=True, eq=False)
class Records:
    """Everything that was observed. Rows stand in order of their scheduled times."""

    requests: npt.NDArray[np.void]
    """(requests,) structured as `REQUEST_COLUMNS`."""
    event_times_s: npt.NDArray[np.float64]
    """(events,) when the event was read from the socket."""
    event_tokens: npt.NDArray[np.uint16]
    """(events,) tokens that it brought."""
    event_kinds: npt.NDArray[np.uint8]
    """(events,) number of an `EventKind`."""
    messages: Counter[tuple[Outcome, str]]
    """What failures said, and how often; the most frequent ones."""

    def __len__(self) -> int:
        return len(self.requests)

    @classmethod
    def empty(cls) -> "Records":
        return cls(
            np.empty(0, _DTYPE),
            np.empty(0, np.float64),
            np.empty(0, np.uint16),
            np.empty(0, np.uint8),
            Counter(),
        )

    @property
    def is_complete(self) -> npt.NDArray[np.bool_]:
        """(requests,) which ones have been answered to the end: the only ones with latencies."""
        complete: npt.NDArray[np.bool_] = self.requests["outcome"] == Outcome.COMPLETE
        return complete

    def flagged(self, flag: RequestFlag) -> npt.NDArray[np.bool_]:
        """(requests,) which ones have the flag."""
        flagged: npt.NDArray[np.bool_] = (self.requests["flags"] & int(flag)) != 0
        return flagged

    def where(self, keep: npt.NDArray[np.bool_]) -> "Records":
        """The chosen requests with their events."""
        requests = self.requests[keep].copy()
        kept_events = np.zeros(len(self.event_times_s) + 1, dtype=np.int64)
        np.add.at(kept_events, requests["first_event"], 1)
        np.add.at(kept_events, requests["first_event"] + requests["events"], -1)
        is_kept = np.cumsum(kept_events)[:-1] > 0
        position = np.concatenate(([0], np.cumsum(is_kept)))
        requests["first_event"] = position[requests["first_event"]]
        return Records(
            requests,
            self.event_times_s[is_kept],
            self.event_tokens[is_kept],
            self.event_kinds[is_kept],
            self.messages,
        )

    def event_owners(self) -> npt.NDArray[np.int64]:
        """(events,) row of the request that each event belongs to."""
        owners = np.empty(len(self.event_times_s), dtype=np.int64)
        order = np.argsort(self.requests["first_event"], kind="stable")
        owners[:] = np.repeat(order, self.requests["events"][order])
        return owners


def request_array(rows: Sequence[tuple[Any, ...]]) -> npt.NDArray[np.void]:
    """Rows in the order of `REQUEST_COLUMNS` as an array."""
    return np.array(rows, dtype=_DTYPE)


def merge_records(parts: Sequence[Records]) -> Records:
    """All requests of several workers in order of their scheduled times."""
    if not parts:
        return Records.empty()
    shifted, offset = [], 0
    for part in parts:
        requests = part.requests.copy()
        requests["first_event"] += offset
        offset += len(part.event_times_s)
        shifted.append(requests)
    requests = np.concatenate(shifted)
    order = np.lexsort((requests["turn"], requests["session"], requests["scheduled_s"]))
    messages: Counter[tuple[Outcome, str]] = Counter()
    for part in parts:
        messages.update(part.messages)
    return Records(
        requests[order],
        np.concatenate([part.event_times_s for part in parts]),
        np.concatenate([part.event_tokens for part in parts]),
        np.concatenate([part.event_kinds for part in parts]),
        messages,
    )


def save_records(records: Records, file: Path | BinaryIO) -> None:
    """Write them as an `.npz` archive of plain arrays."""
    said = [(int(outcome), count, text) for (outcome, text), count in records.messages.items()]
    np.savez_compressed(
        file,
        version=np.array(_VERSION),
        requests=records.requests,
        event_times_s=records.event_times_s,
        event_tokens=records.event_tokens,
        event_kinds=records.event_kinds,
        message_outcomes=np.array([row[0] for row in said], dtype=np.uint8),
        message_counts=np.array([row[1] for row in said], dtype=np.int64),
        message_texts=np.array([row[2] for row in said], dtype=np.str_),
    )


def load_records(source: Path | bytes) -> Records:
    """Read what `save_records` wrote. Raises `InvalidRequest` when it is something else."""
    where = str(source) if isinstance(source, Path) else "records"
    try:
        file = source if isinstance(source, Path) else io.BytesIO(source)
        with np.load(file, allow_pickle=False) as stored:
            return _loaded(stored)
    except (OSError, EOFError, ValueError, KeyError, TypeError, zipfile.BadZipFile) as error:
        raise InvalidRequest(f"holds no records: {error}", param=where) from error


def _loaded(stored: Any) -> Records:
    """From an open `.npz` archive."""
    if int(stored["version"]) != _VERSION:
        raise ValueError(f"version {int(stored['version'])} is not {_VERSION}")
    requests = stored["requests"]
    if requests.dtype != _DTYPE:
        raise ValueError("the columns are not those of this version")
    said = zip(
        stored["message_outcomes"],
        stored["message_texts"],
        stored["message_counts"],
        strict=True,
    )
    return Records(
        requests,
        stored["event_times_s"],
        stored["event_tokens"],
        stored["event_kinds"],
        Counter({(Outcome(int(kind)), str(text)): int(count) for kind, text, count in said}),
    )
