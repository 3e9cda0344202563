"""Tokens of an identity provider: signature, claims, time and revocation, in this order.

Most of the price is the signature. It depends on the token's bytes and the provider's key alone,
neither of which can change, so a token that comes back within a minute is not verified again as
long as the provider's keys are the same. Everything that can change is checked every time: the
times, and the list of revoked tokens. See decision 0009.
"""

import hashlib
import re
from collections.abc import Callable, Collection
from dataclasses import dataclass
from typing import Any

from joserfc import jws
from joserfc.errors import JoseError, UnsupportedAlgorithmError

from steelyard.contract import Clock
from steelyard.gateway.auth.claims import Claims, read_claims
from steelyard.gateway.auth.config import JwtConfig
from steelyard.gateway.auth.key_cache import KeyCache
from steelyard.gateway.auth.refused import CredentialsRefused
from steelyard.gateway.caller import Caller, caller_of

__all__ = ["Revoked", "TokenVerifier", "parse_revoked"]

_MAX_TOKEN_CHARS = 8192
"""What the door takes as a header field, too."""

_TOKEN = re.compile(r"[A-Za-z0-9_-]+\.[A-Za-z0-9_-]+\.[A-Za-z0-9_-]+")

_REMEMBERED = 4096
_REMEMBERED_S = 60.0

Revoked = frozenset[tuple[str, str]]
"""Pairs of claim (`jti` or `sub`) and value."""


@dataclass(frozen=True, slots=True)
class _Verified:
    """A token whose signature is good."""

    claims: Claims
    caller: Caller
    keys_version: int
    forget_s: float


class _Algorithms(jws.JWSRegistry):
    """The configured ones, without the library's own choice where none are configured, and
    without its warning that EdDSA has a better name (RFC 9864) which few providers use yet."""

    def get_alg(self, name: str) -> Any:
        if not self.allowed or name not in self.allowed:
            raise UnsupportedAlgorithmError(name)
        return self.algorithms[name]


class TokenVerifier:
    """Recognises the holders of tokens. `revoked` and `unix_time` are asked every time."""

    def __init__(
        self,
        config: JwtConfig,
        keys: KeyCache,
        *,
        revoked: Callable[[], Collection[tuple[str, str]]],
        unix_time: Callable[[], float],
        clock: Clock,
        require_model_grant: bool,
    ) -> None:
        self._config = config
        self._keys = keys
        self._revoked = revoked
        self._unix_time = unix_time
        self._clock = clock
        self._require_model_grant = require_model_grant
        self._registry = _Algorithms(
            algorithms=config.algorithms,
            strict_check_header=False,  # RFC 7515, section 4: unknown members are ignored
        )
        self._verified: dict[bytes, _Verified] = {}

    async def identify(self, token: str) -> Caller:
        """The holder of `token`, which is ASCII. Raises `CredentialsRefused`, or `RetryLater`
        while there are no keys to verify it with."""
        # By its hash: looking a secret up must not tell how much of it was right.
        digest = hashlib.sha256(token.encode()).digest()
        known = self._verified.get(digest)
        if known is not None and self._still_holds(known):
            self._keys.require_usable()
        else:
            known = await self._verify(token)
            self._remember(digest, known)
        claims = known.claims
        claims.check_time(self._unix_time(), self._config.leeway_s)
        revoked = self._revoked()
        if revoked and (("jti", claims.token_id) in revoked or ("sub", claims.subject) in revoked):
            raise CredentialsRefused("revoked")
        return known.caller

    def _still_holds(self, known: _Verified) -> bool:
        return known.keys_version == self._keys.version and self._clock.now() < known.forget_s

    async def _verify(self, token: str) -> _Verified:
        if len(token) > _MAX_TOKEN_CHARS or not _TOKEN.fullmatch(token):
            raise CredentialsRefused("malformed")
        signed = self._parse(token)
        kid, algorithm = self._read_header(signed.protected)
        key = await self._keys.find(kid, algorithm)
        version = self._keys.version
        if key is None:
            raise CredentialsRefused("key")
        try:
            is_signed = jws.validate_compact(signed, key.key, registry=self._registry)
        except (JoseError, ValueError, TypeError) as error:
            raise CredentialsRefused("signature") from error
        if not is_signed:
            raise CredentialsRefused("signature")
        claims = read_claims(signed.payload, self._config)
        strict = self._require_model_grant
        caller = caller_of(claims.tenant, claims.plan, claims.scopes, require_model_grant=strict)
        return _Verified(claims, caller, version, self._clock.now() + _REMEMBERED_S)

    def _parse(self, token: str) -> jws.CompactSignature:
        try:
            return jws.extract_compact(token.encode(), registry=self._registry)
        except (JoseError, ValueError, TypeError, RecursionError) as error:
            raise CredentialsRefused("malformed") from error

    def _read_header(self, header: Any) -> tuple[str | None, str]:
        """Key id and algorithm. The rest of a header (`jwk`, `jku`, `x5u`) would let a token name
        its own judge, and is never looked at."""
        if not isinstance(header, dict) or "crit" in header or "b64" in header:
            raise CredentialsRefused("malformed")
        kid, algorithm, kind = header.get("kid"), header.get("alg"), header.get("typ", "JWT")
        if not isinstance(kid, str | None) or not isinstance(kind, str):
            raise CredentialsRefused("malformed")
        if kind.lower().removeprefix("application/") not in self._config.token_types:
            raise CredentialsRefused("type")
        if not isinstance(algorithm, str) or algorithm not in self._config.algorithms:
            raise CredentialsRefused("key")
        return kid, algorithm

    def _remember(self, digest: bytes, verified: _Verified) -> None:
        if len(self._verified) >= _REMEMBERED:
            del self._verified[next(iter(self._verified))]
        self._verified.pop(digest, None)
        self._verified[digest] = verified


def parse_revoked(data: bytes) -> Revoked:
    """Lines `jti ID` and `sub NAME`; blank ones and comments are skipped. Raises `ValueError`."""
    found: set[tuple[str, str]] = set()
    for number, line in enumerate(data.decode("utf-8-sig").splitlines(), start=1):
        if not line.strip() or line.lstrip().startswith("#"):
            continue
        claim, _, value = line.strip().partition(" ")
        if claim not in ("jti", "sub") or not value.strip():
            raise ValueError(f"line {number}: expected jti or sub, a blank, and its value")
        found.add((claim, value.strip()))
    return frozenset(found)
