"""What a client process is asked to do and what it reports: JSON lines over its pipes.

All times are nanoseconds of the machine's monotonic clock, which every process shares.
"""

import msgspec

__all__ = ["Ask", "ClientReport", "Job", "Stream", "Worker"]


class Ask(msgspec.Struct, frozen=True):
    """One request: greedy, end tokens ignored, streamed."""

    prompt_ids: list[int]
    max_tokens: int


class Worker(msgspec.Struct, frozen=True):
    """Sends its asks one after the other, each when the one before has ended."""

    asks: list[Ask]
    start_after_events: int = 0
    """Wait until all workers together have received so many events; 0: start at once."""


class Job(msgspec.Struct, frozen=True):
    """A load on one server; its workers run side by side, each on a connection of its own."""

    port: int
    workers: list[Worker]
    model: str
    extra: dict[str, bool | int | float | str | list[str]] = {}
    """Members of every request's body that this server wants besides the common ones."""
    timeout_s: float = 300.0


class Stream(msgspec.Struct):
    """What came of one ask."""

    worker: int
    sent_ns: int
    end_ns: int = 0
    """When the last byte of the answer was read."""
    token_ns: list[int] = []
    """When the socket was read that delivered each event with text, in order."""
    events: int = 0
    """All events but the `[DONE]` mark, with text or not."""
    prompt_tokens: int = 0
    completion_tokens: int = 0
    """As the server counts them in `usage`."""
    cached_tokens: int | None = None
    """None: the server does not say."""
    text: str = ""
    token_ids: list[int] = []
    """Only from the bare loop, which has no text."""
    error: str = ""
    """Why it is no valid answer; empty when it is one."""


class ClientReport(msgspec.Struct):
    """The outcome of a job."""

    streams: list[Stream]
    cpu_s: float
    """CPU time of the client process between the first request and the last answer."""
    wait_s: float
    """Time in which the client could have run but had no processor: its stamps' lateness in sum."""
    wakeups: int
    """How often it was given a processor."""
    elapsed_s: float
