"""The shared store, and what happens while it is away: every process counts alone.

Inference must not stop because a counter did. So a tenant may for a while use its budget once per
process instead of once in all; the metrics and the log say since when. While the server is away no
request waits for it: a single task asks it every second whether it is back.
"""

import asyncio
import contextlib
import logging

from steelyard.contract import Clock
from steelyard.gateway.limits.redis_store import RedisStore, StoreAway
from steelyard.gateway.limits.store import Lease, MemoryStore
from steelyard.policies.budgets import Limits, Verdict
from steelyard.telemetry.access_meter import AccessMeter

__all__ = ["SharedStore"]

_log = logging.getLogger(__name__)

_NAME = "redis"
_RETRY_S = 1.0


class SharedStore:
    """A `LimitStore`: `shared` while it answers, a store of our own otherwise."""

    def __init__(self, shared: RedisStore, *, clock: Clock, meter: AccessMeter) -> None:
        self._shared = shared
        self._own = MemoryStore(clock)
        self._clock = clock
        self._meter = meter
        self._went_away = asyncio.Event()
        meter.store(_NAME, is_up=True)

    @property
    def is_up(self) -> bool:
        """True while the shared store is used."""
        return not self._went_away.is_set()

    async def open(self, tenant: str, limits: Limits) -> tuple[Verdict, Lease | None]:
        """See `LimitStore.open`."""
        if self.is_up:
            try:
                return await self._shared.open(tenant, limits)
            except StoreAway as error:
                self._note_away(error)
        return await self._own.open(tenant, limits)

    async def reserve(self, lease: Lease, tokens: int) -> Verdict:
        """See `LimitStore.reserve`. A request that began with the shared store while it lasted is
        let through: its place is taken there, and its tokens are settled when it is back."""
        if not lease.id:
            return await self._own.reserve(lease, tokens)
        if self.is_up:
            try:
                return await self._shared.reserve(lease, tokens)
            except StoreAway as error:
                self._note_away(error)
        return Verdict()

    def close(self, lease: Lease, used: int) -> None:
        """See `LimitStore.close`."""
        (self._shared if lease.id else self._own).close(lease, used)

    async def run(self) -> None:
        """The shared store's upkeep, and asking for it while it is away, until cancelled."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self._shared.run())
            group.create_task(self._watch())

    async def _watch(self) -> None:
        while True:
            await self._went_away.wait()
            await self._clock.sleep(_RETRY_S)
            with contextlib.suppress(StoreAway):
                await self._shared.ping()
                self._went_away.clear()
                self._meter.store(_NAME, is_up=True)
                _log.info("the shared store of tenants' budgets is back")

    def _note_away(self, error: StoreAway) -> None:
        self._meter.store_failed(_NAME)
        if self.is_up:
            self._went_away.set()
            self._meter.store(_NAME, is_up=False)
            _log.error(
                "the shared store of tenants' budgets is away (%s); until it is back, every "
                "process counts alone",
                error,
            )
