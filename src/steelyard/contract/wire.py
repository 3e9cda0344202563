"""Messages between an engine process and its clients; `codec` frames them.

A client connects, receives `Progress` while the model loads and `Hello` when it is ready, then
sends commands. The engine answers with events. One connection carries any number of requests;
when it breaks, the engine aborts the requests that came over it.
"""

import msgspec

from steelyard.contract.engine import EngineInfo, EngineStatus
from steelyard.contract.errors import ErrorInfo
from steelyard.contract.requests import GenerateRequest, TokenChunk

__all__ = [
    "PROTOCOL_VERSION",
    "Abort",
    "Chunks",
    "Command",
    "Done",
    "Drain",
    "Event",
    "Failed",
    "Hello",
    "Progress",
    "StatusQuery",
    "StatusReply",
    "Submit",
    "Warm",
]

PROTOCOL_VERSION = 1


class Submit(msgspec.Struct, frozen=True, tag="submit"):
    """Start (or continue) a request; answered by `Chunks` and, on failure, `Failed`."""

    request: GenerateRequest


class Abort(msgspec.Struct, frozen=True, tag="abort"):
    """Stop a request; nothing is sent for it any more. Unknown ids are ignored."""

    request_id: str


class StatusQuery(msgspec.Struct, frozen=True, tag="status?"):
    """Ask for a `StatusReply` with the same `tag`."""

    query_id: int


class Warm(msgspec.Struct, frozen=True, tag="warm"):
    """Compute prompts into the prefix cache; answered by `Done`."""

    query_id: int
    prompts: tuple[tuple[int, ...], ...]
    cache_salt: str = ""


class Drain(msgspec.Struct, frozen=True, tag="drain"):
    """Take no new requests; answered by `Done` when the running ones have finished."""

    query_id: int


class Hello(msgspec.Struct, frozen=True, tag="hello"):
    """The engine is ready."""

    protocol: int
    info: EngineInfo


class Progress(msgspec.Struct, frozen=True, tag="progress"):
    """Loading goes on: a share in [0, 1] and what is being done."""

    share: float
    what: str


class Chunks(msgspec.Struct, frozen=True, tag="chunks"):
    """All chunks that one step produced for this connection."""

    chunks: tuple[TokenChunk, ...]


class Failed(msgspec.Struct, frozen=True, tag="failed"):
    """A request ended without a finish reason."""

    request_id: str
    error: ErrorInfo


class StatusReply(msgspec.Struct, frozen=True, tag="status"):
    """Answer to `StatusQuery`."""

    query_id: int
    status: EngineStatus


class Done(msgspec.Struct, frozen=True, tag="done"):
    """Answer to `Warm` and `Drain`; `error` is None on success."""

    query_id: int
    error: ErrorInfo | None = None


Command = Submit | Abort | StatusQuery | Warm | Drain
Event = Hello | Progress | Chunks | Failed | StatusReply | Done
