"""What a kind of server wants to be told, and how it answers: all that `engine` does not know.

A dialect is pure but for `open`, `check`, `measure` and `abort`, which ask the server through the
client they are given.
"""

from dataclasses import dataclass
from typing import Any, Protocol

from steelyard.backends.http.client import HttpClient
from steelyard.contract import EngineInfo, FinishReason, GenerateRequest, TokenLogprobs, Usage

__all__ = ["Call", "Delta", "Dialect", "Load", "Reader"]


@dataclass(frozen=True, slots=True)
class Call:
    """One request to the server."""

    path: str
    body: dict[str, Any]


@dataclass(frozen=True, slots=True)
class Delta:
    """What one event adds to a stream."""

    token_ids: tuple[int, ...] = ()
    logprobs: tuple[TokenLogprobs, ...] | None = None
    finish_reason: FinishReason | None = None
    """Set on the last one."""
    usage: Usage | None = None


@dataclass(frozen=True, slots=True)
class Load:
    """What a server says of itself; zeros where it says nothing."""

    running: int = 0
    waiting: int = 0
    kv_blocks_used: int = 0
    kv_blocks_total: int = 0
    prompt_tokens_total: int = 0
    cached_tokens_total: int = 0
    produced_tokens_total: int = 0
    preemptions_total: int = 0
    finished_total: int = 0


class Reader(Protocol):
    """Reads the events of one stream, in order."""

    def read(self, payload: bytes) -> Delta | None:
        """What an event adds; None when nothing yet. Raises errors of the tree."""
        ...

    def end(self) -> Delta | None:
        """After the last event: what was held back; None when nothing was."""
        ...


class Dialect(Protocol):
    """One kind of server."""

    async def open(self, client: HttpClient) -> EngineInfo:
        """Find out what the server is and can do, by a real token. Raises when it is not ready,
        `SettingsError` when waiting for it cannot help."""
        ...

    async def check(self, client: HttpClient) -> None:
        """Raise when the server is not well. Cheap: asked every few seconds."""
        ...

    async def measure(self, client: HttpClient) -> Load | None:
        """How loaded it is; None when it does not say."""
        ...

    def call(self, request: GenerateRequest) -> Call:
        """How to ask for a stream. Raises `UnsupportedFeature` for what cannot be asked."""
        ...

    def reader(self, request: GenerateRequest) -> Reader:
        """Reads what `call` is answered with."""
        ...

    async def abort(self, client: HttpClient, request_id: str) -> None:
        """Tell the server to stop, where closing the connection is not enough."""
        ...
