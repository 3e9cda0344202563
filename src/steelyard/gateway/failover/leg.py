"""One leg of a request's journey: a slot on a replica and the chunks that come from there.

A context: entering it takes a slot, leaving it gives the slot back, ends what is left of the
stream, and swallows failures after which there may be another leg.
"""

from collections.abc import AsyncGenerator
from types import TracebackType

from steelyard.contract import TokenChunk
from steelyard.contract.errors import SteelyardError
from steelyard.gateway.failover.dispatcher import Dispatcher
from steelyard.gateway.failover.hedge import Race
from steelyard.gateway.failover.journey import Journey
from steelyard.gateway.failover.member import Attempt
from steelyard.gateway.failover.stream import Stream

__all__ = ["Leg"]


class Leg:
    """Valid between entry and exit."""

    __slots__ = ("_dispatcher", "_journey", "_stream", "attempt")

    def __init__(self, dispatcher: Dispatcher, journey: Journey) -> None:
        self._dispatcher = dispatcher
        self._journey = journey
        self._stream: Stream | None = None
        self.attempt: Attempt

    async def __aenter__(self) -> "Leg":
        attempt = await self._dispatcher.take_off(self._journey)
        try:
            self._hold(Stream(attempt, self._dispatcher.clock.now()))
        except SteelyardError:
            self._dispatcher.close(attempt)
            raise
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> bool:
        """True when the failure was one after which the request goes on."""
        stream = self._stream
        if stream is None:  # a race was interrupted, and has cleaned up
            return False
        attempt = stream.attempt
        self._dispatcher.attempts.pop(self._journey.request.request_id, None)
        verdict = attempt.take_verdict()
        error = verdict or error
        try:
            if isinstance(error, SteelyardError):
                self._dispatcher.fail(attempt, error)
                return True
            if not attempt.has_finished:
                self._dispatcher.close(attempt)
            return False
        finally:
            await stream.close()

    @property
    def chunks(self) -> AsyncGenerator[TokenChunk, None]:
        """What comes from the replica. Raises errors of the tree."""
        assert self._stream is not None, "the leg is over"
        return self._stream.chunks

    async def hedge(self) -> None:
        """Ask a second replica if the first token is late; this is then the leg of the faster."""
        hedging, stream = self._dispatcher.hedging, self._stream
        assert hedging is not None and stream is not None
        delay_s = hedging.delay_s
        if delay_s is None or self._journey.attempts_in_all > 1:
            return
        self._stream = None
        race = Race(self._dispatcher, stream)
        try:
            self._hold(await race.run(delay_s))
        except SteelyardError:
            if race.last is not None:
                self._hold(race.last)
            raise

    def take(self, chunk: TokenChunk) -> TokenChunk:
        """Check a chunk and note what is in it; as the client shall see it.

        Not needed for a chunk that the client may see as it is, and that is neither the leg's
        first nor its last.
        """
        attempt = self.attempt
        shown = self._journey.take(chunk)
        if attempt.chunks == 1:
            self._dispatcher.note_first_chunk(attempt, chunk)
        if chunk.finish_reason is not None:
            self._dispatcher.finish(attempt)  # now, because the client may take its time
        return shown

    def _hold(self, stream: Stream) -> None:
        self._stream = stream
        self.attempt = stream.attempt
        self._journey.is_plain = stream.is_plain
        self._dispatcher.attempts[self._journey.request.request_id] = stream.attempt
        stream.attempt.wait()
