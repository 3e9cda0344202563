"""The truth file: what really happened to every request, to compare any client's report with.

    line 1       {"kind": "run", …}         `RunTruth`: what was configured, which clock
    line 2 …     {"kind": "request", …}     `RequestTruth`, in the order in which they ended

`*_ns` are nanoseconds of the machine's monotonic clock (CLOCK_MONOTONIC, which Python's
`time.monotonic_ns` reads in every process of the machine); lists of times are offsets from
`arrived_ns`, with one entry per token. `TruthWriter` writes, `read_truth` reads.
"""

import time
from pathlib import Path
from typing import BinaryIO

import msgspec

from steelyard.contract.errors import SettingsError
from steelyard.lab.mock.rendering import Usage

__all__ = ["TRUTH_VERSION", "RequestTruth", "RunTruth", "TruthWriter", "read_truth"]

TRUTH_VERSION = 1


class RunTruth(msgspec.Struct, frozen=True, kw_only=True, tag_field="kind", tag="run"):
    """About the run as a whole."""

    version: int
    config: dict[str, str]
    """Every key of the mock's configuration, as text."""
    monotonic_to_unix_ns: int
    """Add this to a `*_ns` for Unix time, as of the start of the run."""


class RequestTruth(msgspec.Struct, kw_only=True, tag_field="kind", tag="request"):
    """About one request. Times that never came are None."""

    index: int
    """Number, from 0, by arrival; -1 for a request that was refused before it had a plan."""
    request_id: str
    """The client's `x-request-id`, else one of ours; the answer carries it too."""
    endpoint: str
    is_stream: bool
    connection: int
    """Number of the connection: shows how many a client really uses."""
    header_ns: int
    """The first bytes of the request were read."""
    arrived_ns: int
    """The request was read completely."""
    slot_ns: int | None = None
    """Service began; until then it waited in line."""
    prefilled_ns: int | None = None
    """Its prompt's turn of prefill was over."""
    head_ns: int | None = None
    """The first byte of the answer was handed to the kernel."""
    ended_ns: int | None = None
    """The last byte of the answer was, or the client was found to be gone."""
    scheduled_ns: list[int] = []
    """When each token should have been sent: offset from `arrived_ns`."""
    sent_ns: list[int] = []
    """When the system call that sends each token returned: offset from `arrived_ns`. A client on
    the same machine may have it up to the length of that call earlier, about 0.1 ms."""
    blocked_tokens: int = 0
    """Of these, tokens that had to wait in the mock because the client did not read: they left
    later than `sent_ns` says, and the client is to blame."""
    event_tokens: list[int] = []
    """Tokens in each event that carried any."""
    prompt_tokens: int = 0
    output_tokens: int = 0
    """Tokens sent; fewer than planned when the answer broke off."""
    reasoning_tokens: int = 0
    client_tokens: int = 0
    """What a client counts in the text it was sent, splitting it at spaces."""
    reported: Usage | None = None
    """Usage as the answer claimed it; None when it reported none."""
    status: int = 200
    finish_reason: str | None = None
    outcome: str = "finished"
    """finished, refused, client_gone, shutdown, or the fault: 429, 500, reset, truncate, …"""
    preemptions: int = 0

    @property
    def ttft_ns(self) -> int | None:
        """From arrival to the first token, reasoning included; None without tokens."""
        return self.sent_ns[0] if self.sent_ns else None

    @property
    def latency_ns(self) -> int | None:
        """From arrival to the end."""
        return None if self.ended_ns is None else self.ended_ns - self.arrived_ns


class TruthWriter:
    """Appends lines to a file; buffered, so call `flush` now and then."""

    def __init__(self, path: Path, config: dict[str, str]) -> None:
        try:
            self._file: BinaryIO = path.open("wb", buffering=1024 * 1024)
        except OSError as error:
            raise SettingsError(error.strerror or str(error), param="truth") from error
        self._encoder = msgspec.json.Encoder()
        self._is_dirty = False
        self.write(
            RunTruth(
                version=TRUTH_VERSION,
                config=config,
                monotonic_to_unix_ns=time.time_ns() - time.monotonic_ns(),
            )
        )
        self.flush()

    def write(self, record: RunTruth | RequestTruth) -> None:
        """Add one line."""
        self._file.write(self._encoder.encode(record) + b"\n")
        self._is_dirty = True

    def flush(self) -> None:
        """Let readers see what was written."""
        if self._is_dirty:
            self._file.flush()
            self._is_dirty = False

    def close(self) -> None:
        """Safe to repeat."""
        self._file.close()


def read_truth(path: Path) -> tuple[RunTruth, list[RequestTruth]]:
    """The run and its requests by time of arrival. Raises `SettingsError` on another file."""
    decoder = msgspec.json.Decoder(RunTruth | RequestTruth)
    requests: list[RequestTruth] = []
    run = None
    with path.open("rb") as file:
        for number, line in enumerate(file, start=1):
            try:
                record = decoder.decode(line)
            except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
                raise SettingsError(f"line {number}: {error}", param=str(path)) from None
            if isinstance(record, RunTruth):
                run = record
            else:
                requests.append(record)
    if run is None or run.version != TRUTH_VERSION:
        raise SettingsError("is no truth file of this version", param=str(path))
    return run, sorted(requests, key=lambda request: request.arrived_ns)
