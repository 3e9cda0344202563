"""What a client process is told, and what it tells: one JSON message per line of its pipes.

parent → client    Job, Begin, Stop
client → parent    Ready, Progress …, Finished | Failed
"""

import msgspec

from steelyard.lab.client.driver import Limits, Share
from steelyard.lab.client.pulse import ClientHealth
from steelyard.lab.client.target import Target
from steelyard.lab.load import TokenScale, Workload

__all__ = [
    "Begin",
    "Failed",
    "Finished",
    "FromClient",
    "Job",
    "Progress",
    "Ready",
    "Stop",
    "ToClient",
]


class Job(msgspec.Struct, frozen=True, kw_only=True, tag="job"):
    """One worker's part of a run. Holds the target's headers, so it is never written to a file."""

    workload: Workload
    target: Target
    nonce: str
    run_id: str
    share: Share = Share()
    scale: TokenScale = TokenScale()
    limits: Limits = Limits()
    tokenizer: str | None = None
    """Checkpoint whose tokenizer counts answers again. None: nothing counts them."""
    sends_ids: bool = False
    """Plain prompts are sent as token ids of that tokenizer."""
    count_again_every: int = 0
    """Of one in so many sessions the answer is counted again. 0: of none."""
    is_prompt: bool = True
    """Ask the kernel to run the client as soon as it wakes: times are stamped late otherwise."""
    records_path: str = ""
    """Where the client writes its records."""


class Begin(msgspec.Struct, frozen=True, tag="begin"):
    """Everybody is ready."""

    start_s: float
    """Time zero of the run on the machine's monotonic clock."""


class Stop(msgspec.Struct, frozen=True, tag="stop"):
    """Abandon what runs and report what there is."""


class Ready(msgspec.Struct, frozen=True, tag="ready"):
    """The plan is made and the first requests are written."""


class Progress(msgspec.Struct, frozen=True, kw_only=True, tag="progress"):
    """For people who watch, twice a second."""

    worker: int
    in_flight: int
    waiting: int
    """Behind the asked concurrency cap."""
    complete: int
    shed: int
    failed: int
    tokens: int
    """Since the start, of complete answers."""
    ttft_s: list[float]
    """Of the answers that were completed since the last message, from the scheduled times."""
    lag_s: float
    """Worst lag of the event loop in the last second."""


class Finished(msgspec.Struct, frozen=True, tag="finished"):
    """The records are written."""

    health: ClientHealth


class Failed(msgspec.Struct, frozen=True, tag="failed"):
    """The client cannot go on."""

    message: str


ToClient = Job | Begin | Stop
FromClient = Ready | Progress | Finished | Failed
