"""A race for the first token: when it is late, a second replica is asked; the faster one wins."""

import asyncio

from steelyard.contract import TokenChunk
from steelyard.contract.clock import within
from steelyard.contract.errors import SteelyardError
from steelyard.gateway.failover.dispatcher import Dispatcher
from steelyard.gateway.failover.stream import Stream

__all__ = ["Race"]


class Race:
    """Owns the streams that take part; the winner is handed over, the others are ended."""

    def __init__(self, dispatcher: Dispatcher, stream: Stream) -> None:
        self._dispatcher = dispatcher
        self._journey = stream.attempt.journey
        self._runners: dict[asyncio.Task[TokenChunk], Stream] = {}
        self.last: Stream | None = None
        """The one that failed last, still open, when `run` raised because nobody is left."""
        self._enter(stream)

    async def run(self, delay_s: float) -> Stream:
        """The stream that has its first chunk first, that chunk put back.

        A second one takes part after `delay_s`. Raises what the last one failed with.
        """
        try:
            if not await self._is_decided_within(delay_s):
                self._enter_second()
            while True:
                done, _ = await asyncio.wait(self._runners, return_when=asyncio.FIRST_COMPLETED)
                winner = await self._look_at(done.pop())
                if winner is not None:
                    return winner
        finally:
            await self._end_others()

    async def _is_decided_within(self, delay_s: float) -> bool:
        (runner,) = self._runners
        try:
            await within(self._dispatcher.clock, delay_s, asyncio.wait((runner,)))
        except TimeoutError:
            return False
        return True

    def _enter(self, stream: Stream) -> None:
        self._runners[asyncio.create_task(stream.first())] = stream

    def _enter_second(self) -> None:
        dispatcher, journey = self._dispatcher, self._journey
        hedging, now_s = dispatcher.hedging, dispatcher.clock.now()
        (first,) = self._runners.values()
        journey.failed.add(first.attempt.member.target.index)
        attempt = None
        if hedging is not None and hedging.try_spend(now_s):
            attempt = dispatcher.take_off_again(journey)
        if attempt is not None:
            journey.is_hedged = True
            try:
                self._enter(Stream(attempt, now_s))
            except SteelyardError:
                dispatcher.close(attempt)
                raise

    async def _look_at(self, runner: "asyncio.Task[TokenChunk]") -> Stream | None:
        stream = self._runners.pop(runner)
        try:
            chunk = runner.result()
        except SteelyardError as error:
            if not self._runners:
                self.last = stream
                raise
            try:
                self._dispatcher.fail(stream.attempt, error)
            finally:
                await stream.close()
            return None
        stream.put_back(chunk)
        if self._journey.is_hedged:
            self._dispatcher.note_hedge(has_won=not stream.is_plain)
        return stream

    async def _end_others(self) -> None:
        for runner, stream in self._runners.items():
            runner.cancel()
            await asyncio.wait((runner,))
            if not runner.cancelled():
                runner.exception()  # seen: it came too late to matter
            self._dispatcher.close(stream.attempt)
            await stream.close()
        self._runners.clear()
