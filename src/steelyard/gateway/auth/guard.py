"""The step before everything else: who asks, and may they?

Answers 401 and 403 as RFC 6750 wants them. What credentials look like and how they are checked is
the authenticators' business (`api_keys`, `tokens`); which route asks for what, that of
`gateway.app`.
"""

import asyncio
import logging
import re
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from steelyard.gateway.auth.key_cache import KeyCache
from steelyard.gateway.auth.refused import CredentialsRefused, RefusalReason
from steelyard.gateway.caller import ANYBODY, NOBODY, Access, Caller
from steelyard.gateway.errors import Refusal
from steelyard.gateway.http import Exchange
from steelyard.telemetry.access_meter import AccessMeter

__all__ = ["Authenticator", "Guard", "Upkeep", "is_bearer"]

_log = logging.getLogger(__name__)

_TOKEN68 = r"[A-Za-z0-9._~+/-]+=*"
_BEARER = re.compile(rf"[Bb]earer +({_TOKEN68})")
_CHALLENGE = 'Bearer realm="steelyard"'


class Authenticator(Protocol):
    """Recognises callers by what follows `Bearer`."""

    async def identify(self, credentials: str, /) -> Caller:
        """The holder of credentials, which are of RFC 6750's alphabet. Raises
        `CredentialsRefused`, or an error of the tree when it cannot know now."""
        ...


@dataclass(frozen=True, slots=True)
class Upkeep:
    """What an authenticator needs done while it is in use."""

    loops: Sequence[Callable[[], Coroutine[Any, Any, None]]] = ()
    """Each runs until it is cancelled."""
    keys: KeyCache | None = None
    """Of the identity provider; None when there is none."""


class Guard:
    """Lets callers in, or raises the `Refusal` that says why not."""

    def __init__(
        self, authenticator: Authenticator | None, upkeep: Upkeep, meter: AccessMeter
    ) -> None:
        """`authenticator` None: nobody is asked for credentials."""
        self._authenticator = authenticator
        self._upkeep = upkeep
        self._meter = meter

    @property
    def asks(self) -> bool:
        """False when whoever reaches the port may do everything."""
        return self._authenticator is not None

    @property
    def keys(self) -> KeyCache | None:
        """The identity provider's, to be taken over by the guard that replaces this one."""
        return self._upkeep.keys

    async def admit(self, exchange: Exchange, access: Access) -> Caller:
        """Who asks. Raises `Refusal` 401 or 403, or an error of the tree."""
        if self._authenticator is None:
            return ANYBODY
        if access is Access.OPEN:
            return NOBODY
        try:
            caller = await self._authenticator.identify(_bearer(exchange))
            if not caller.may(access):
                raise CredentialsRefused("grant")
        except CredentialsRefused as refused:
            self._meter.refused(refused.reason)
            _log.debug("request %s: credentials refused: %s", exchange.request_id, refused.reason)
            raise _refusal(refused, access) from None
        return caller

    async def run(self) -> None:
        """Do the upkeep until cancelled."""
        if not self._upkeep.loops:
            return
        async with asyncio.TaskGroup() as group:
            for loop in self._upkeep.loops:
                group.create_task(loop())


def is_bearer(credentials: str) -> bool:
    """True for what can follow `Bearer` in a header."""
    return re.fullmatch(_TOKEN68, credentials) is not None


def _bearer(exchange: Exchange) -> str:
    """What stands behind `Bearer`. Two such fields could be read as one by us and as the other by
    a proxy, so there may be one."""
    fields = exchange.headers("authorization")
    if not fields:
        raise CredentialsRefused("missing")
    match = _BEARER.fullmatch(fields[0]) if len(fields) == 1 else None
    if match is None:
        raise CredentialsRefused("malformed")
    return match[1]


def _refusal(refused: CredentialsRefused, access: Access) -> Refusal:
    if refused.reason == "grant":
        return Refusal(
            403,
            f"These credentials lack the grant {access.value}.",
            kind="permission_error",
            code="permission_denied",
            headers=(
                _challenge(refused.reason, "insufficient_scope", f', scope="{access.value}"'),
            ),
        )
    return Refusal(
        401,
        refused.text,
        kind="authentication_error",
        code="invalid_api_key",
        headers=(_challenge(refused.reason, "invalid_token"),),
    )


def _challenge(reason: RefusalReason, error: str, more: str = "") -> tuple[str, str]:
    """RFC 6750, section 3: no error code for somebody who sent no credentials."""
    detail = "" if reason == "missing" else f', error="{error}"{more}'
    return "www-authenticate", _CHALLENGE + detail
