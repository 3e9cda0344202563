"""The background of a replica set: looks at its streams, and asks its members how they are.

Carries out what `supervision` decides to look at; all waiting is here.
"""

import asyncio
import logging
from collections.abc import Callable

from steelyard.contract import Clock, EngineStatus
from steelyard.contract.clock import within
from steelyard.contract.errors import EngineLost, RetryLater, SteelyardError
from steelyard.gateway.failover.config import FailoverConfig
from steelyard.gateway.failover.member import Member
from steelyard.gateway.failover.replica_set import ReplicaSet
from steelyard.gateway.failover.supervision import Supervision

__all__ = ["Watch"]

_log = logging.getLogger(__name__)

_FREEZE_S = 0.5
"""A sweep that comes later than this was held up by more than a busy moment (a paused machine, most
likely, and the replicas with it): that time does not count as silence."""


class Watch:
    """Runs between `startup` and `shutdown`."""

    def __init__(
        self,
        replicas: ReplicaSet,
        supervision: Supervision,
        config: FailoverConfig,
        *,
        clock: Clock,
        on_status: Callable[[str, EngineStatus], None],
    ) -> None:
        """`on_status` hears every answer to a probe, with the replica's name."""
        self._replicas = replicas
        self._supervision = supervision
        self._config = config
        self._clock = clock
        self._on_status = on_status
        self._probes: set[asyncio.Task[None]] = set()
        self._loop: asyncio.Task[None] | None = None

    def startup(self) -> None:
        """Begin to watch; returns at once. Safe to repeat."""
        if self._loop is None:
            self._loop = asyncio.create_task(self._main_loop(), name="failover-watch")

    async def shutdown(self) -> None:
        """Stop watching. Safe to repeat."""
        loop, self._loop = self._loop, None
        if loop is not None:
            loop.cancel()
            await asyncio.wait((loop,))
        probes = tuple(self._probes)
        for probe in probes:
            probe.cancel()
        if probes:
            await asyncio.wait(probes)

    async def _main_loop(self) -> None:
        tick_s = self._config.tick_s
        seen_s = self._clock.now()
        while True:
            await self._clock.sleep(tick_s)
            # Whatever has arrived while we were held up shall be seen before anybody is judged.
            await self._clock.sleep(0)
            now_s = self._clock.now()
            elapsed_s = now_s - seen_s
            self._supervision.sweep(now_s, elapsed_s if elapsed_s <= _FREEZE_S else tick_s)
            seen_s = now_s
            self._begin_probes(now_s)

    def _begin_probes(self, now_s: float) -> None:
        for member in self._supervision.due(now_s, self._probes_per_tick()):
            timeout_s = member.health.begin_probe(now_s)
            probe = asyncio.create_task(self._probe(member, timeout_s))
            self._probes.add(probe)
            probe.add_done_callback(self._probes.discard)

    def _probes_per_tick(self) -> int:
        """Twice what is needed on the average: probes of a large fleet come spread over time."""
        health = self._config.policies.health
        return 4 + int(2 * len(self._replicas) * self._config.tick_s / health.probe_s)

    async def _probe(self, member: Member, timeout_s: float) -> None:
        try:
            status = await within(self._clock, timeout_s, member.engine.status())
        except (EngineLost, RetryLater) as error:
            self._replicas.note_absence(member, error, self._clock.now())
        except (TimeoutError, SteelyardError):
            self._supervision.note_miss(member, self._clock.now())
        else:
            self._supervision.note_answer(member, status, self._clock.now())
            self._on_status(member.name, status)
