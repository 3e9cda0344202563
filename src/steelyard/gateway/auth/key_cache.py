"""The provider's keys, kept so that the provider may be slow, wrong or away.

    fetched ──── half of ttl: fetched again, in the background ──── ttl ──── max_stale: unusable
                 failure: tried again every cooldown; the last good keys stay

A token with an unknown key id may mean that the provider has changed its keys, so it may cause a
fetch; a flood of made-up ids must not. Whatever asks, two fetches begin at least a cooldown apart,
and at most one is under way. A failed fetch never takes a key away; a successful one does.
"""

import asyncio
import logging
import math
from collections.abc import Awaitable, Callable

from steelyard.contract import Clock
from steelyard.contract.errors import RetryLater
from steelyard.gateway.auth.config import JwtConfig
from steelyard.gateway.auth.key_set import KeySet, VerificationKey
from steelyard.telemetry.access_meter import AccessMeter

__all__ = ["KeyCache"]

_log = logging.getLogger(__name__)

_FIRST_COOLDOWN_S = 5.0
"""Between fetches as long as there are no keys at all, when nobody can be let in."""


class KeyCache:
    """Keys by id. `fetch` returns a fresh set, or raises `OSError` or `ValueError` within a time
    limit of its own."""

    def __init__(
        self,
        fetch: Callable[[], Awaitable[KeySet]],
        *,
        config: JwtConfig,
        clock: Clock,
        meter: AccessMeter,
    ) -> None:
        self._fetch = fetch
        self._config = config
        self._clock = clock
        self._meter = meter
        self._set: KeySet | None = None
        self._fetched_s = -math.inf
        self._tried_s = -math.inf
        self._flight: asyncio.Task[None] | None = None
        self.version = 0
        """Grows whenever the keys are others than before."""
        self.error: str | None = None
        """Why the newest fetch failed; None when it did not."""

    def is_for(self, config: JwtConfig) -> bool:
        """True when these keys are the ones that `config` asks for."""
        return _origin(config) == _origin(self._config)

    @property
    def age_s(self) -> float:
        """Since the last successful fetch; infinite before the first."""
        return self._clock.now() - self._fetched_s

    async def run(self) -> None:
        """Keep the keys fresh, for ever."""
        try:
            while True:
                due_s = self._tried_s + self._pause_s()
                if (left_s := due_s - self._clock.now()) > 0:
                    await self._clock.sleep(left_s)
                else:
                    await self.refresh()
        finally:
            if self._flight is not None:
                self._flight.cancel()

    def require_usable(self) -> None:
        """Raise `RetryLater` when there are no keys, or none recent enough to be trusted."""
        if self._set is None or self.age_s > self._config.keys_max_stale_s:
            raise RetryLater(
                "tokens cannot be verified now, because the keys of the identity provider cannot "
                "be had",
                delay_s=_FIRST_COOLDOWN_S,
                fix="Retry after the given delay.",
            )

    async def find(self, kid: str | None, algorithm: str) -> VerificationKey | None:
        """The key of a token, after a fetch if it is unknown and one is allowed; None when there
        is no such key. Raises `RetryLater` as `require_usable` does."""
        key = self._set.find(kid, algorithm) if self._set is not None else None
        if key is None and (self._flight is not None or self._may_fetch()):
            await self.refresh()
            key = self._set.find(kid, algorithm) if self._set is not None else None
        self.require_usable()
        return key

    async def refresh(self) -> None:
        """Fetch, or wait for the fetch that is under way. Raises nothing."""
        if self._flight is None:
            self._flight = asyncio.create_task(self._fetch_once())
        await asyncio.wait((self._flight,))  # it goes on when whoever waits here is cancelled

    def _may_fetch(self) -> bool:
        return self._clock.now() - self._tried_s >= self._cooldown_s()

    def _cooldown_s(self) -> float:
        return self._config.keys_cooldown_s if self._set is not None else _FIRST_COOLDOWN_S

    def _pause_s(self) -> float:
        """Between two fetches that nobody asked for."""
        return self._cooldown_s() if self.error is not None else self._config.keys_ttl_s / 2

    async def _fetch_once(self) -> None:
        self._tried_s = self._clock.now()
        try:
            found = await self._fetch()
        except (OSError, ValueError) as error:
            self._note_failure(str(error))
        else:
            self._take(found)
        finally:
            self._flight = None

    def _take(self, found: KeySet) -> None:
        if self._set is None or not found.is_same_as(self._set):
            self.version += 1
            _log.info("the identity provider has %d usable keys", len(found.keys))
        self._set, self._fetched_s = found, self._clock.now()
        self.error = None
        self._meter.keys_fetched(self._config.issuer, is_ok=True)

    def _note_failure(self, reason: str) -> None:
        if self.error is None:  # once, not every cooldown while the provider is away
            _log.warning("the keys of the identity provider cannot be fetched: %s", reason)
        self.error = reason
        self._meter.keys_fetched(self._config.issuer, is_ok=False)


def _origin(config: JwtConfig) -> tuple[object, ...]:
    return (
        config.issuer,
        config.jwks_url,
        config.algorithms,
        config.keys_ttl_s,
        config.keys_max_stale_s,
    )
