"""A worker's connections to the engines that its keeper has started.

A single engine is used as it is; several are one through failover, as they would be in one
process. Processes are started, watched and stopped elsewhere: here, an engine that cannot be
reached is asked again until it can be, or until the keeper takes it off the list.
"""

import asyncio
import contextlib
from collections.abc import Sequence

from steelyard.backends.embedded import EmbeddedEngine
from steelyard.contract import Clock, Engine, RealClock
from steelyard.contract.errors import EngineStarting, SteelyardError
from steelyard.contract.wire import Progress
from steelyard.gateway.failover import FailoverConfig, FailoverEngine
from steelyard.gateway.workers.messages import EnginePost
from steelyard.telemetry.failover_meter import FailoverMeter

__all__ = ["EnginePosts"]

_RETRY_S = 0.1
_PATIENCE_S = 3600.0
"""Of one attempt: loading a large model takes minutes, and the keeper watches over that."""
_SETTLE_S = 0.02
_ASK_AGAIN_S = 2.0
_GRACE_S = 5.0


class EnginePosts:
    """Follows a list of engines. Used from one event loop."""

    def __init__(
        self,
        posts: Sequence[EnginePost],
        config: FailoverConfig,
        meter: FailoverMeter,
        clock: Clock | None = None,
    ) -> None:
        """`posts` are those at the start; a list of one is that engine alone, for good."""
        self._clock = clock or RealClock()
        self._contacts: dict[str, _Contact] = {}
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._leaving: set[asyncio.Task[None]] = set()
        self._failover: FailoverEngine | None = None
        if len(posts) > 1:
            self._failover = FailoverEngine(config, meter=meter, clock=self._clock)
        self.engine: Engine = self._failover or self._only(posts[0])
        """What requests are handed to."""
        self._first = tuple(posts)

    def startup(self) -> None:
        """Begin to connect; returns at once."""
        if self._failover is not None:
            self._failover.startup()
        self.follow(self._first)

    def follow(self, posts: Sequence[EnginePost]) -> None:
        """These are the engines now; returns at once."""
        for post in posts:
            if post.name not in self._tasks:
                self._join(post)
            if self._failover is not None:
                self._failover.want(post.name, post.is_wanted)
        for name in self._tasks.keys() - {post.name for post in posts}:
            leaving = asyncio.create_task(self._leave(name, self._tasks.pop(name)))
            self._leaving.add(leaving)
            leaving.add_done_callback(self._leaving.discard)

    async def settle(self) -> None:
        """Return once requests can be handed to an engine."""
        while True:
            with contextlib.suppress(SteelyardError):
                _ = self.engine.info
                return
            await self._clock.sleep(_SETTLE_S)

    async def shutdown(self) -> None:
        """Disconnect from all."""
        tasks = [*self._tasks.values(), *self._leaving]
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)
        await self.engine.close()

    def _only(self, post: EnginePost) -> EmbeddedEngine:
        contact = self._contacts[post.name] = _Contact(post.address, self._clock)
        return contact.engine

    def _join(self, post: EnginePost) -> None:
        contact = self._contacts.setdefault(post.name, _Contact(post.address, self._clock))
        if self._failover is not None:
            self._failover.add(post.name, contact.engine, group=post.group, weight=post.weight)
        self._tasks[post.name] = asyncio.create_task(contact.run(), name=f"reach-{post.name}")

    async def _leave(self, name: str, reaching: "asyncio.Task[None]") -> None:
        if self._failover is not None:
            await self._failover.retire(name, grace_s=_GRACE_S)
        reaching.cancel()
        await asyncio.wait((reaching,))
        await self._contacts.pop(name).engine.close()


class _Contact:
    """An engine object that is kept connected."""

    def __init__(self, address: str, clock: Clock) -> None:
        self.engine = EmbeddedEngine(address, clock=clock)
        self.engine.explain_absence = self._absence
        self._clock = clock
        self._progress: Progress | None = None
        self._was_ready = False

    async def run(self) -> None:
        """Connect, and again after every loss, until cancelled."""
        while True:
            with contextlib.suppress(SteelyardError):
                await self.engine.connect(timeout_s=_PATIENCE_S, on_progress=self._note_progress)
                self._progress, self._was_ready = None, True
                await self.engine.wait_lost()
            await self._clock.sleep(_RETRY_S)

    def _note_progress(self, progress: Progress) -> None:
        self._progress = progress

    def _absence(self) -> SteelyardError:
        what = "was lost and is being restarted" if self._was_ready else "is starting"
        if self._progress is not None:
            what += f": {self._progress.what}, {self._progress.share:.0%}"
        return EngineStarting(f"the engine {what}", delay_s=_ASK_AGAIN_S)
