"""Budgets that processes and machines share through a Redis server.

Requests ask with one script each for `open` and `reserve`; `close` is sent in the background, many
in one go, because nobody waits for it. Places in flight are leases with an expiry that a live
process keeps moving, so that a process that died gives back what it held.
"""

import asyncio
import contextlib
import hashlib
import itertools
import logging
import os
from collections import deque
from collections.abc import Sequence
from typing import Any

from redis.asyncio import Redis
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff
from redis.exceptions import RedisError

from steelyard.contract import Clock
from steelyard.gateway.limits._redis_scripts import CLOSE, OPEN, RESERVE
from steelyard.gateway.limits.config import RedisConfig
from steelyard.gateway.limits.store import Lease
from steelyard.policies.budgets import Gauge, Limits, Verdict

__all__ = ["RedisStore", "StoreAway"]

_log = logging.getLogger(__name__)

_MOST_CLOSES = 100_000
"""Waiting to be sent; beyond it the oldest are forgotten, and their leases expire."""
_CLOSES_PER_TRIP = 256


class StoreAway(Exception):
    """The server cannot be asked now."""


class RedisStore:
    """A `LimitStore` that may raise `StoreAway`. Used from one event loop."""

    def __init__(self, config: RedisConfig, clock: Clock) -> None:
        self._config = config
        self._clock = clock
        self._redis = Redis.from_url(
            config.url,
            password=config.password,
            socket_timeout=config.timeout_s,
            socket_connect_timeout=config.timeout_s,
            retry=Retry(NoBackoff(), 0),  # whoever waits would rather be counted here alone
            health_check_interval=0,
        )
        self._open = self._redis.register_script(OPEN)
        self._reserve = self._redis.register_script(RESERVE)
        self._close = self._redis.register_script(CLOSE)
        self._process = os.urandom(8).hex()
        self._numbers = itertools.count()
        self._leases: dict[str, Lease] = {}
        self._closes: deque[tuple[Lease, int]] = deque(maxlen=_MOST_CLOSES)
        self._has_closes = asyncio.Event()

    async def open(self, tenant: str, limits: Limits) -> tuple[Verdict, Lease | None]:
        """See `LimitStore.open`."""
        lease = Lease(tenant, limits, id=f"{self._process}-{next(self._numbers)}")
        places = limits.concurrent_requests or 0
        verdict = await self._ask(self._open, lease, places, lease.id, self._lease_us)
        if verdict.refused_by is not None:
            return verdict, None
        self._leases[lease.id] = lease
        return verdict, lease

    async def reserve(self, lease: Lease, tokens: int) -> Verdict:
        """See `LimitStore.reserve`."""
        verdict = await self._ask(self._reserve, lease, tokens)
        if verdict.refused_by is None:
            lease.reserved = tokens
        return verdict

    def close(self, lease: Lease, used: int) -> None:
        """See `LimitStore.close`."""
        del self._leases[lease.id]
        self._closes.append((lease, lease.reserved - used))
        self._has_closes.set()

    async def ping(self) -> None:
        """Return when the server answers. Raises `StoreAway`."""
        with _translated():
            async with asyncio.timeout(self._config.timeout_s):
                await self._redis.ping()

    async def run(self) -> None:
        """Send what was closed, and keep open leases alive, until cancelled."""
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(self._send_closes())
                group.create_task(self._renew_leases())
        finally:
            await self._send_last_closes()
            await self._redis.aclose()

    async def _ask(self, script: Any, lease: Lease, *more: int | str) -> Verdict:
        with _translated():
            async with asyncio.timeout(self._config.timeout_s):
                answer = await script(keys=self._keys(lease), args=self._arguments(lease, *more))
        return _verdict(lease.limits, answer)

    async def _send_closes(self) -> None:
        while True:
            await self._has_closes.wait()
            if not self._closes:
                self._has_closes.clear()
                continue
            batch = [
                self._closes.popleft() for _ in range(min(len(self._closes), _CLOSES_PER_TRIP))
            ]
            try:
                await self._send(batch)
            except StoreAway as error:
                # They may have arrived, so they are not sent again: a budget that refills soon
                # anyway is better than one refunded twice.
                _log.debug("%d closed requests were not settled: %s", len(batch), error)

    async def _send(self, batch: Sequence[tuple[Lease, int]]) -> None:
        with _translated():
            async with asyncio.timeout(10 * self._config.timeout_s):
                async with self._redis.pipeline(transaction=False) as pipe:
                    for lease, refund in batch:
                        await self._close(
                            keys=self._keys(lease),
                            args=self._arguments(lease, lease.id, refund),
                            client=pipe,
                        )
                    await pipe.execute()

    async def _send_last_closes(self) -> None:
        with contextlib.suppress(StoreAway):
            while self._closes:
                batch = [
                    self._closes.popleft() for _ in range(min(len(self._closes), _CLOSES_PER_TRIP))
                ]
                await self._send(batch)

    async def _renew_leases(self) -> None:
        while True:
            await self._clock.sleep(self._config.lease_s / 3)
            with contextlib.suppress(StoreAway):
                await self._renew([le for le in self._leases.values() if _counts_places(le)])

    async def _renew(self, leases: Sequence[Lease]) -> None:
        if not leases:
            return
        with _translated():
            async with asyncio.timeout(10 * self._config.timeout_s):
                seconds, micros = await self._redis.time()
                expiry_us = int(seconds) * 1_000_000 + int(micros) + self._lease_us
                async with self._redis.pipeline(transaction=False) as pipe:
                    for lease in leases:
                        _, places = self._keys(lease)
                        pipe.zadd(places, {lease.id: expiry_us}, xx=True)
                        pipe.pexpire(places, self._lease_us // 1000)
                    await pipe.execute()

    @property
    def _lease_us(self) -> int:
        return int(self._config.lease_s * 1e6)

    def _keys(self, lease: Lease) -> list[str]:
        # A hash, so that no tenant's name can reach into another key; braces, so that a cluster
        # keeps the two together.
        name = hashlib.sha256(lease.tenant.encode()).hexdigest()[:32]
        base = f"{self._config.prefix}:{{{name}}}"
        return [f"{base}:budget", f"{base}:places"]

    def _arguments(self, lease: Lease, *more: int | str) -> list[int | str]:
        limits = lease.limits
        return [0, limits.requests_per_minute or 0, limits.tokens_per_minute or 0, *more]


def _counts_places(lease: Lease) -> bool:
    return lease.limits.concurrent_requests is not None


def _verdict(limits: Limits, answer: Any) -> Verdict:
    refused_by, wait_us, requests, tokens = answer
    rpm, tpm = limits.requests_per_minute, limits.tokens_per_minute
    return Verdict(
        None if rpm is None else Gauge.of(rpm, int(requests)),
        None if tpm is None else Gauge.of(tpm, int(tokens)),
        refused_by.decode() or None,
        int(wait_us),
    )


@contextlib.contextmanager
def _translated() -> Any:
    """Everything that can go wrong with a server means the same here."""
    try:
        yield
    except (RedisError, OSError, TimeoutError) as error:
        raise StoreAway(f"{type(error).__name__}: {error}") from error
