"""The chunks that one attempt brings, from the request's submission on."""

import asyncio
import contextlib
from collections.abc import AsyncGenerator
from typing import cast

from steelyard.contract import TokenChunk
from steelyard.contract.errors import EngineFailed, SteelyardError
from steelyard.gateway.failover.member import Attempt

__all__ = ["Stream"]


class Stream:
    """One attempt's chunks. Ended by `close`, which also frees what the engine holds for it."""

    __slots__ = ("attempt", "chunks", "request_id")

    def __init__(self, attempt: Attempt, now_s: float) -> None:
        """Submits the request once the first chunk is asked for. Raises `DeadlineExceeded`."""
        request = attempt.journey.next_request(now_s)
        self.attempt = attempt
        self.request_id = request.request_id
        self.chunks = cast(
            AsyncGenerator[TokenChunk, None], attempt.member.engine.generate(request)
        )

    @property
    def is_plain(self) -> bool:
        """Whether its chunks may reach the client as they are."""
        return self.request_id == self.attempt.journey.request.request_id

    async def first(self) -> TokenChunk:
        """The first chunk. Raises an error of the tree when the attempt fails or is given up."""
        self.attempt.wait()
        try:
            return await anext(self.chunks)
        except StopAsyncIteration:
            raise EngineFailed("the engine ended a stream without a finish reason") from None
        except asyncio.CancelledError:
            verdict = self.attempt.take_verdict()
            if verdict is None:
                raise
            raise verdict from None

    def put_back(self, chunk: TokenChunk) -> None:
        """Let `chunk`, taken by `first`, be the next one again."""
        self.chunks = _chain(chunk, self.chunks)

    async def close(self) -> None:
        """End it, and abort the request if it is not over. Safe to repeat."""
        with contextlib.suppress(SteelyardError):  # it was given up: its last words do not matter
            await self.chunks.aclose()


async def _chain(
    first: TokenChunk, rest: AsyncGenerator[TokenChunk, None]
) -> AsyncGenerator[TokenChunk, None]:
    async with contextlib.aclosing(rest):
        yield first
        async for chunk in rest:
            yield chunk
