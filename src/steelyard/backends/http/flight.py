"""One request on its way: can be stopped at any moment, and proves its tokens as they come."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable
from contextlib import AbstractAsyncContextManager
from typing import TypeVar

from steelyard.backends.http.client import EventStream
from steelyard.backends.http.dialect import Delta
from steelyard.contract import Clock, GenerateRequest, TokenChunk, Usage
from steelyard.contract.clock import within
from steelyard.contract.errors import DeadlineExceeded, EngineFailed, SteelyardError

__all__ = ["Flight"]

ResultT = TypeVar("ResultT")


class Flight:
    """Owned by the generator that serves the request; `stop` may come from elsewhere."""

    def __init__(
        self,
        request: GenerateRequest,
        *,
        clock: Clock,
        end_token_ids: tuple[int, ...],
        vocab_size: int,
        is_exact: bool,
    ) -> None:
        """`is_exact`: tokens are the server's own, so that it cannot send more than asked for."""
        self._request = request
        self._clock = clock
        self._stops = {*end_token_ids, *request.sampling.stop_token_ids}
        self._vocab_size = vocab_size
        self._is_exact = is_exact
        self._start = len(request.emitted_ids)
        self._due_s = None if request.deadline_s is None else clock.now() + request.deadline_s
        self._opening: asyncio.Future[EventStream] | None = None
        self._stream: EventStream | None = None
        self.reason: SteelyardError | None = None
        """Why it was stopped; None while it was not."""
        self.has_finished = False

    def stop(self, reason: SteelyardError) -> None:
        """End it; whoever reads fails at once."""
        if self.reason is not None:
            return
        self.reason = reason
        if self._stream is not None:
            self._stream.close()
        elif self._opening is not None:
            self._opening.cancel()

    @contextlib.asynccontextmanager
    async def opening(
        self, events: AbstractAsyncContextManager[EventStream]
    ) -> AsyncIterator[EventStream]:
        """Enter `events`, unless stopped or too late before."""
        self._opening = asyncio.ensure_future(events.__aenter__())
        try:
            self._stream = await self.wait_for(self._opening)
        except asyncio.CancelledError:
            if self.reason is not None:
                raise self.reason from None
            raise
        finally:
            if self._stream is None:
                _give_up(self._opening)
        try:
            yield self._stream
        finally:
            await events.__aexit__(None, None, None)

    async def wait_for(self, work: Awaitable[ResultT]) -> ResultT:
        """The result of `work`. Raises `DeadlineExceeded`, and what it was stopped with."""
        if self._due_s is None:
            result = await work
        else:
            try:
                result = await within(self._clock, self._due_s - self._clock.now(), work)
            except TimeoutError as error:
                raise DeadlineExceeded("the deadline of the request passed") from error
        if self.reason is not None:
            raise self.reason
        return result

    def take(self, delta: Delta) -> TokenChunk:
        """The next chunk. Raises `EngineFailed` for tokens that cannot be."""
        ids, start = delta.token_ids, self._start
        end = start + len(ids)
        if self._is_exact and end > self._request.sampling.max_tokens:
            raise EngineFailed("the endpoint sent more tokens than were asked for")
        if ids and not (min(ids) >= 0 and max(ids) < self._vocab_size):
            raise EngineFailed("the endpoint sent a token that the vocabulary does not have")
        if delta.logprobs is not None and len(delta.logprobs) != len(ids):
            raise EngineFailed("the endpoint sent tokens without their log-probabilities")
        self._start = end
        self.has_finished = delta.finish_reason is not None
        has_stopped = delta.finish_reason == "stop" and ids and ids[-1] in self._stops
        return TokenChunk(
            self._request.request_id,
            start,
            ids,
            delta.logprobs,
            finish_reason=delta.finish_reason,
            stop_token_id=ids[-1] if has_stopped else None,
            usage=self._usage(delta) if self.has_finished else None,
        )

    def _usage(self, delta: Delta) -> Usage:
        """As the client sees it: a prompt that was continued is still the prompt."""
        prompt_tokens = len(self._request.prompt_ids)
        cached_tokens = delta.usage.cached_tokens if delta.usage is not None else 0
        return Usage(prompt_tokens, self._start, min(cached_tokens, prompt_tokens))


def _give_up(opening: "asyncio.Future[EventStream]") -> None:
    """Nobody wants it any more; it may have come about in the same moment."""
    if not opening.cancel() and not opening.cancelled() and opening.exception() is None:
        opening.result().close()
