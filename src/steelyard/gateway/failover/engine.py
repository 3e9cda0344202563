"""`contract.Engine` over many engines: routes, retries, and continues streams that broke.

One idea: the token log. What a client was given is kept, so that any replica can be asked to go on
from there (`emitted_ids`), and `start` of every chunk proves that nothing is lost or repeated. A
stream ends with a finish reason or with an error, never silently.

    leg        a slot on the best replica, and its chunks             leg, replica_set
    stream     each chunk checked against the log                     here
    failure    who is to blame, and may there be another leg?         supervision, journey

Sampling is keyed by seed and position, so on our own engine a continued stream draws the tokens it
would have drawn without the failure. What clients are told about usage does not change either.
"""

import asyncio
import contextlib
import uuid
from collections.abc import AsyncGenerator, Callable, Iterator, Sequence

from steelyard.contract import (
    Clock,
    Engine,
    EngineInfo,
    EngineState,
    EngineStatus,
    GenerateRequest,
    RealClock,
    TokenChunk,
)
from steelyard.contract.clock import within
from steelyard.contract.errors import (
    Cancelled,
    EngineDraining,
    EngineFailed,
    EngineStarting,
    InvalidRequest,
    Quarantined,
    SteelyardError,
)
from steelyard.gateway.failover.config import FailoverConfig
from steelyard.gateway.failover.dispatcher import Dispatcher
from steelyard.gateway.failover.journey import Journey
from steelyard.gateway.failover.leg import Leg
from steelyard.gateway.failover.member import Member
from steelyard.gateway.failover.replica_set import ReplicaSet
from steelyard.gateway.failover.supervision import Supervision
from steelyard.gateway.failover.totals import Totals, sum_up_infos
from steelyard.gateway.failover.watch import Watch
from steelyard.policies.quarantine import fingerprint
from steelyard.telemetry.failover_meter import FailoverMeter

__all__ = ["FailoverEngine"]


class FailoverEngine:
    """One model on many replicas, which may come and go. Used from one event loop.

    `startup` begins to watch them; without it stalls are not seen, and lost replicas are not found
    again. The replicas' processes are kept by `fleet`.
    """

    def __init__(
        self,
        config: FailoverConfig | None = None,
        *,
        meter: FailoverMeter,
        clock: Clock | None = None,
        on_status: Callable[[str, EngineStatus], None] | None = None,
    ) -> None:
        """`on_status` hears of every replica's status, by its name, as it is probed."""
        self._config = config or FailoverConfig()
        self._clock = clock or RealClock()
        self._meter = meter
        self.replicas = ReplicaSet(self._config.policies, meter=meter, seed=self._config.seed)
        """Who there is. Changed through this object; to be read by whoever is curious."""
        supervision = Supervision(self.replicas)
        self._dispatcher = Dispatcher(self.replicas, supervision, self._clock)
        self._watch = Watch(
            self.replicas,
            supervision,
            self._config,
            clock=self._clock,
            on_status=on_status or _ignore,
        )
        self._journeys: dict[str, Journey] = {}
        self._is_draining = False
        self._idle = asyncio.Event()
        self._epoch = uuid.uuid4().hex
        self._totals = Totals(self._epoch)
        self._info: EngineInfo | None = None
        self._info_version = -1

    # Replicas come and go.

    def startup(self) -> None:
        """Begin to watch the replicas; returns at once."""
        self._watch.startup()

    def add(
        self,
        name: str,
        engine: Engine,
        *,
        group: str = "",
        weight: float = 1.0,
        penalty_s: float = 0.0,
    ) -> None:
        """Take a replica in; see `ReplicaSet.add`."""
        self.replicas.add(
            name, engine, self._clock.now(), group=group, weight=weight, penalty_s=penalty_s
        )

    def want(self, name: str, is_wanted: bool) -> None:
        """Give a replica new requests, or none (a standby, or one about to be stopped)."""
        self.replicas.want(name, is_wanted)

    async def empty(self, name: str, *, grace_s: float) -> None:
        """Give a replica no new requests, and see that what it has ends: whoever is not done after
        `grace_s` goes on elsewhere. Returns once nothing is in flight there; it stays unwanted."""
        self.replicas.want(name, False)
        member = self.replicas[name]
        with contextlib.suppress(TimeoutError):
            await within(self._clock, grace_s, self._until_free(member))
        while member.attempts:  # those whose clients are slow are told when they come back
            member.give_up(EngineDraining(f"the replica {name} is drained"), is_move=True)
            await self._clock.sleep(self._config.tick_s)

    async def retire(self, name: str, *, grace_s: float) -> None:
        """As `empty`, and take the replica out."""
        await self.empty(name, grace_s=grace_s)
        self.replicas.remove(name)

    async def statuses(self) -> dict[str, EngineStatus]:
        """Of every replica by name; of those that are slow to answer, their last known status."""
        await self._refresh_all()
        return {member.name: _shown(member) for member in self.replicas}

    # contract.Engine

    @property
    def info(self) -> EngineInfo:
        """What holds for all replicas together. Raises `RetryLater` when none is there."""
        replicas = self.replicas
        if not replicas.find_somebody():
            raise replicas.why_nobody()
        if self._info is None or self._info_version != replicas.version:
            infos = [member.info for member in replicas if member.info is not None]
            self._info = sum_up_infos(infos, self._epoch)
            self._info_version = replicas.version
        return self._info

    async def generate(self, request: GenerateRequest) -> AsyncGenerator[TokenChunk, None]:
        """See `contract.Engine`. The loop that runs once per chunk of every stream."""
        dispatcher = self._dispatcher
        with self._journey(request) as journey:
            emitted = journey.emitted
            while True:
                async with Leg(dispatcher, journey) as leg:
                    if dispatcher.hedging is not None:
                        await leg.hedge()
                    attempt = leg.attempt
                    is_usual = False
                    async for chunk in leg.chunks:
                        attempt.chunks += 1
                        if is_usual and not chunk.finish_reason and chunk.start == len(emitted):
                            emitted += chunk.token_ids
                        else:
                            chunk = leg.take(chunk)
                            is_usual = journey.is_plain
                        attempt.is_waiting = False
                        yield chunk
                        if attempt.has_finished:
                            return
                        attempt.wait()
                    raise EngineFailed("the engine ended a stream without a finish reason")

    async def abort(self, request_id: str) -> None:
        """See `contract.Engine`; whoever iterates over it gets `Cancelled`."""
        journey = self._journeys.get(request_id)
        if journey is None:
            return
        journey.is_aborted = True
        attempt = self._dispatcher.attempts.get(request_id)
        if attempt is None:
            self._dispatcher.tell_news()
        else:
            attempt.give_up(Cancelled("the request was aborted"), is_move=False)

    async def status(self) -> EngineStatus:
        """The sum of all replicas; of those that are slow to answer, their last known status."""
        if not self.replicas.find_somebody():
            raise self.replicas.why_nobody()
        await self._refresh_all()
        statuses = {m.name: m.status for m in self.replicas if m.status is not None}
        state: EngineState = "draining" if self._is_draining else "ready"
        return self._totals.add_up(statuses, state)

    async def warm(self, prompts: Sequence[Sequence[int]]) -> None:
        """Compute prompts into the prefix cache of every replica that is ready."""
        await asyncio.gather(*(member.engine.warm(prompts) for member in self.replicas.ready))

    async def drain(self) -> None:
        """Refuse new requests; returns when the running ones have ended. Replicas are left alone:
        others may use them too."""
        self._is_draining = True
        while self._journeys:
            self._idle.clear()
            await self._idle.wait()

    async def close(self) -> None:
        """Stop watching and close the replicas' engines. Safe to repeat."""
        self._dispatcher.is_closed = True
        self._dispatcher.tell_news()
        await self._watch.shutdown()
        await asyncio.gather(*(member.engine.close() for member in self.replicas))

    @contextlib.contextmanager
    def _journey(self, request: GenerateRequest) -> Iterator[Journey]:
        """A request from its acceptance to its end."""
        now_s = self._clock.now()
        self._refuse_if_hopeless(request, now_s)
        self._dispatcher.note_request()
        journey = Journey(request, now_s, self._config.policies.retries)
        self._journeys[request.request_id] = journey
        try:
            yield journey
        except SteelyardError as error:
            self._dispatcher.note_given_up(journey, error)
            raise
        finally:
            del self._journeys[request.request_id]
            if not self._journeys:
                self._idle.set()

    def _refuse_if_hopeless(self, request: GenerateRequest, now_s: float) -> None:
        if self._is_draining:
            raise EngineDraining("no new requests are taken")
        if request.request_id in self._journeys:
            raise InvalidRequest("this request id is in use", param="request_id")
        quarantine = self.replicas.quarantine
        if quarantine.has_verdicts and quarantine.is_refused(fingerprint(request), now_s):
            self._meter.quarantined()
            raise Quarantined("replicas died of requests like this one, so it is refused")

    async def _refresh_all(self) -> None:
        members = [member for member in self.replicas if not member.health.is_absent]
        await asyncio.gather(*map(self._refresh, members))

    async def _refresh(self, member: Member) -> None:
        try:
            limit_s = self._config.status_timeout_s
            member.status = await within(self._clock, limit_s, member.engine.status())
        except (TimeoutError, SteelyardError):
            return  # its last known status stays; the watch will find out what is wrong

    async def _until_free(self, member: Member) -> None:
        while member.attempts:
            await self._clock.sleep(self._config.tick_s)


def _shown(member: Member) -> EngineStatus:
    if member.health.is_absent or member.status is None:
        is_coming = member.absence is None or isinstance(member.absence, EngineStarting)
        return EngineStatus(state="starting" if is_coming else "lost")
    return member.status


def _ignore(_name: str, _status: EngineStatus) -> None:
    pass
