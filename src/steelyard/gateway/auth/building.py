"""From settings to a guard: which authenticator, which files, whose keys."""

import time
from collections.abc import Callable
from functools import partial
from typing import TypeVar

from steelyard.contract import Clock, RealClock
from steelyard.contract.errors import SettingsError
from steelyard.gateway.auth.api_keys import KeyTable, parse_keys
from steelyard.gateway.auth.config import AuthConfig, JwtConfig
from steelyard.gateway.auth.guard import Guard, Upkeep
from steelyard.gateway.auth.key_cache import KeyCache
from steelyard.gateway.auth.key_fetch import fetch_key_set
from steelyard.gateway.auth.tokens import TokenVerifier, parse_revoked
from steelyard.gateway.auth.watched_file import WatchedFile
from steelyard.telemetry.access_meter import AccessMeter

__all__ = ["build_guard", "require_keys"]

ContentT = TypeVar("ContentT")


def build_guard(
    config: AuthConfig,
    meter: AccessMeter,
    *,
    clock: Clock | None = None,
    unix_time: Callable[[], float] = time.time,
    former: Guard | None = None,
) -> Guard:
    """A guard for these settings. `former` is the one it replaces: keys of the same provider are
    taken over. Raises `SettingsError` for a file that cannot be used."""
    clock = clock or RealClock()
    build = {"none": _no_guard, "api_keys": _key_guard, "jwt": _token_guard}[config.mode]
    return build(config, _Surroundings(clock, unix_time, meter, former))


async def require_keys(guard: Guard) -> None:
    """Raise `SettingsError` when the identity provider's keys were never fetched and cannot be.

    For settings that are to replace others that work.
    """
    if guard.keys is not None and guard.keys.version == 0:
        await guard.keys.refresh()
        if guard.keys.error is not None:
            raise SettingsError(
                f"the keys of the identity provider cannot be fetched: {guard.keys.error}",
                param="gateway.auth.jwt.jwks_url",
                fix="correct it, or wait until the provider can be reached",
            )


class _Surroundings:
    """What every kind of guard is built with."""

    def __init__(
        self,
        clock: Clock,
        unix_time: Callable[[], float],
        meter: AccessMeter,
        former: Guard | None,
    ) -> None:
        self.clock = clock
        self.unix_time = unix_time
        self.meter = meter
        self.former = former

    def keys(self, config: JwtConfig) -> KeyCache:
        """The former guard's, when they are of the same provider."""
        former = self.former.keys if self.former is not None else None
        if former is not None and former.is_for(config):
            return former
        fetch = partial(fetch_key_set, config)
        return KeyCache(fetch, config=config, clock=self.clock, meter=self.meter)

    def watch(self, file: WatchedFile[ContentT], every_s: float) -> Upkeep:
        """Keep reading a file."""

        def note(is_ok: bool) -> None:
            self.meter.file_read(is_ok=is_ok)

        return Upkeep(loops=(lambda: file.run(self.clock, every_s, note),))


def _no_guard(config: AuthConfig, around: _Surroundings) -> Guard:
    return Guard(None, Upkeep(), around.meter)


def _key_guard(config: AuthConfig, around: _Surroundings) -> Guard:
    assert config.keys_file is not None, "the rules of the settings ask for it"
    file = WatchedFile(config.keys_file, parse_keys, setting="gateway.auth.keys_file")
    table = KeyTable(
        lambda: file.content,
        unix_time=around.unix_time,
        require_model_grant=config.require_model_grant,
    )
    return Guard(table, around.watch(file, config.files_poll_s), around.meter)


def _token_guard(config: AuthConfig, around: _Surroundings) -> Guard:
    assert config.jwt is not None, "the rules of the settings ask for it"
    keys = around.keys(config.jwt)
    loops = [keys.run]
    revoked: Callable[[], frozenset[tuple[str, str]]] = frozenset
    if config.revoked_file is not None:
        file = WatchedFile(config.revoked_file, parse_revoked, setting="gateway.auth.revoked_file")
        revoked = lambda: file.content  # noqa: E731 (a function would hide that it is one line)
        loops += around.watch(file, config.files_poll_s).loops
    verifier = TokenVerifier(
        config.jwt,
        keys,
        revoked=revoked,
        unix_time=around.unix_time,
        clock=around.clock,
        require_model_grant=config.require_model_grant,
    )
    return Guard(verifier, Upkeep(loops, keys), around.meter)
