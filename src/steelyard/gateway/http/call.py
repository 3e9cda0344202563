"""What the path of an inference request needs to know of who called, and how it answers.

`Exchange` is a call over HTTP; a line of a batch is another (`gateway.batches`).
"""

from typing import Protocol

from steelyard.gateway.caller import Caller
from steelyard.gateway.errors import Refusal
from steelyard.gateway.http.answers import Answer, Headers
from steelyard.gateway.http.event_stream import EventStream

__all__ = ["Call"]


class Call(Protocol):
    """One request that wants one answer."""

    answer_headers: Headers
    """Fields that every answer of this call carries."""

    @property
    def caller(self) -> Caller:
        """Who asks."""
        ...

    @property
    def interrupted_by(self) -> Refusal | None:
        """Why the server cancelled this call; None when it did not."""
        ...

    def header(self, name: str) -> str | None:
        """The first field called `name`; None when there is none."""
        ...

    async def read_body(self) -> bytes:
        """The whole body, JSON. Raises `Refusal`."""
        ...

    def open_stream(self) -> EventStream:
        """Events as the answer. Raises `InvalidRequest` where there can be none."""
        ...

    async def send(self, answer: Answer) -> None:
        """Answer completely."""
        ...
