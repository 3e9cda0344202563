"""Messages between a worker and the process that keeps it; `channel` frames and numbers them.

The keeper asks for everything but the metrics page, which clients ask a worker for and only the
keeper can put together.
"""

import msgspec

from steelyard.contract.errors import ErrorInfo
from steelyard.telemetry import MetricsSnapshot

__all__ = [
    "Adopt",
    "Done",
    "EnginePost",
    "Envelope",
    "Hello",
    "Message",
    "Page",
    "PageText",
    "Prepare",
    "Roster",
    "SettleEngines",
    "Snapshot",
    "TakeMetrics",
]


class EnginePost(msgspec.Struct, frozen=True):
    """An engine that workers connect to."""

    name: str
    address: str
    group: str = ""
    weight: float = 1.0
    is_wanted: bool = True
    """Whether it gets new requests."""


class Hello(msgspec.Struct, frozen=True, tag="hello"):
    """Answered, by `Done`, once the worker's door is open."""


class Prepare(msgspec.Struct, frozen=True, tag="prepare"):
    """Get ready to follow these settings (a deployment as JSON); an error says why not."""

    deployment: bytes


class Adopt(msgspec.Struct, frozen=True, tag="adopt"):
    """Follow the settings prepared last."""


class Roster(msgspec.Struct, frozen=True, tag="roster"):
    """The engines that there are now."""

    posts: tuple[EnginePost, ...]


class SettleEngines(msgspec.Struct, frozen=True, tag="settle"):
    """Answered, by `Done`, once the worker can hand requests to an engine."""


class TakeMetrics(msgspec.Struct, frozen=True, tag="metrics"):
    """Answered by `Snapshot`."""


class Page(msgspec.Struct, frozen=True, tag="page"):
    """From a worker: all metrics, in the format of an `Accept` header; answered by `PageText`."""

    accept: str


class Done(msgspec.Struct, frozen=True, tag="done"):
    """Nothing more to say."""


class Snapshot(msgspec.Struct, frozen=True, tag="snapshot"):
    """A worker's metrics, and how busy it is."""

    metrics: MetricsSnapshot
    in_flight: int
    waiting: int


class PageText(msgspec.Struct, frozen=True, tag="page_text"):
    """What `/metrics` answers."""

    body: bytes
    content_type: str


Message = (
    Hello
    | Prepare
    | Adopt
    | Roster
    | SettleEngines
    | TakeMetrics
    | Page
    | Done
    | Snapshot
    | PageText
)


class Envelope(msgspec.Struct, frozen=True, omit_defaults=True):
    """A question, or the answer of the same number: a message or an error."""

    number: int
    is_answer: bool = False
    message: Message | None = None
    error: ErrorInfo | None = None
