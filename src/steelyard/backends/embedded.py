"""`contract.Engine` on an engine process of ours, over its socket.

Connects, and again after the process was restarted; adds deadlines. Starting and stopping the
process is `fleet`'s job, the connection itself is `_engine_link`.
"""

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence

from steelyard.backends._engine_link import EngineLink
from steelyard.contract import (
    Clock,
    EngineInfo,
    EngineStatus,
    GenerateRequest,
    RealClock,
    TokenChunk,
)
from steelyard.contract.address import UnixAddress, parse_address
from steelyard.contract.clock import within
from steelyard.contract.errors import EngineLost, EngineStalled, SteelyardError
from steelyard.contract.wire import Drain, Progress, StatusQuery, Warm

__all__ = ["EmbeddedEngine"]

_RETRY_S = 0.02
"""Between attempts to reach a process that is only starting: a refused connect costs 50 µs."""


class EmbeddedEngine:
    """A client of one engine process at `address` (`unix:…` or `tcp:…`).

    Stays the same object while the process behind it comes and goes: after a loss, `connect`
    again, and `info.epoch` tells that it is a new one. Used from one event loop.
    """

    def __init__(
        self, address: str, *, clock: Clock | None = None, status_timeout_s: float = 5.0
    ) -> None:
        self._address = parse_address(address)
        self._clock = clock or RealClock()
        self._status_timeout_s = status_timeout_s
        self.explain_absence: Callable[[], SteelyardError] = self._not_connected
        """What requests are told while nobody is connected. Whoever keeps the process up knows how
        far its start is, and may put something better here."""
        self._link: EngineLink | None = None
        self._info: EngineInfo | None = None

    @property
    def info(self) -> EngineInfo:
        """Fixed facts of the process connected now. Raises `explain_absence()` when none is."""
        self._live_link()
        assert self._info is not None, "a live link has said hello"
        return self._info

    async def connect(
        self, *, timeout_s: float, on_progress: Callable[[Progress], None] | None = None
    ) -> EngineInfo:
        """Connect and wait until the engine is ready; retries while nobody listens yet.

        `on_progress` hears how far loading is. Raises `EngineStalled` after `timeout_s`,
        `EngineLost` when the process went away while it was loading.
        """
        await self.close()
        try:
            link, info = await within(
                self._clock, timeout_s, self._reach(on_progress or _ignore_progress)
            )
        except TimeoutError as error:
            raise EngineStalled(
                f"the engine at {self._address} was not ready after {timeout_s:g} s"
            ) from error
        self._link, self._info = link, info
        return info

    async def wait_lost(self) -> EngineLost:
        """Return, with the reason, once the connection is gone; at once when there is none."""
        if self._link is None:
            return EngineLost("not connected")
        return await asyncio.shield(self._link.lost)

    async def generate(self, request: GenerateRequest) -> AsyncIterator[TokenChunk]:
        """Stream the tokens of `request`; it is submitted when the first chunk is asked for.

        Closing the iterator early (`contextlib.aclosing`) aborts the request.
        """
        link = self._live_link()
        stream = await link.open_stream(request)
        try:
            while True:
                chunk = stream.take() or await stream.wait()
                yield chunk
                if chunk.finish_reason is not None:
                    return
        finally:
            link.close_stream(stream)

    async def abort(self, request_id: str) -> None:
        """Stop a request; whoever iterates over it gets `Cancelled`."""
        if self._link is not None and not self._link.lost.done():
            self._link.abort(request_id)

    async def status(self) -> EngineStatus:
        """A fresh snapshot. Raises `EngineStalled` when none comes within the time limit."""
        link = self._live_link()
        try:
            answer = await within(self._clock, self._status_timeout_s, link.ask(StatusQuery))
        except TimeoutError as error:
            raise EngineStalled(
                f"no status from the engine for {self._status_timeout_s:g} s"
            ) from error
        assert answer is not None, "only a StatusReply carries a status query's id"
        return answer

    async def warm(self, prompts: Sequence[Sequence[int]]) -> None:
        """Compute prompts into the prefix cache; returns when they are there."""
        ids = tuple(tuple(prompt) for prompt in prompts)
        await self._live_link().ask(lambda query_id: Warm(query_id, ids))

    async def drain(self) -> None:
        """Make the engine refuse new requests; returns when the accepted ones have ended."""
        await self._live_link().ask(Drain)

    async def close(self) -> None:
        """Disconnect: the engine aborts what came over this connection. Safe to repeat."""
        link, self._link = self._link, None
        if link is not None:
            link.close("the connection was closed here")
            # The event loop closes the socket one turn later.
            await asyncio.sleep(0)

    async def _reach(
        self, on_progress: Callable[[Progress], None]
    ) -> tuple[EngineLink, EngineInfo]:
        while True:
            link = await self._dial(on_progress)
            try:
                return link, await link.hello
            except EngineLost:
                # Silent until the end: it was the socket of a predecessor that is just dying.
                if link.has_spoken:
                    raise
                await self._clock.sleep(_RETRY_S)
            except BaseException:
                link.close("the connection was given up")
                raise

    async def _dial(self, on_progress: Callable[[Progress], None]) -> EngineLink:
        while True:
            try:
                return await self._dial_once(on_progress)
            except (ConnectionError, FileNotFoundError):
                await self._clock.sleep(_RETRY_S)
            except OSError as error:
                raise EngineLost(
                    f"cannot reach an engine at {self._address}: {error.strerror or error}"
                ) from error

    async def _dial_once(self, on_progress: Callable[[Progress], None]) -> EngineLink:
        loop = asyncio.get_running_loop()
        address = self._address
        if isinstance(address, UnixAddress):
            _, link = await loop.create_unix_connection(
                lambda: EngineLink(on_progress), address.path
            )
        else:
            _, link = await loop.create_connection(
                lambda: EngineLink(on_progress), address.host, address.port
            )
        return link

    def _live_link(self) -> EngineLink:
        if self._link is None or self._link.lost.done():
            raise self.explain_absence()
        return self._link

    def _not_connected(self) -> SteelyardError:
        return EngineLost(f"no connection to the engine at {self._address}")


def _ignore_progress(_progress: Progress) -> None:
    pass
