"""What a token says, checked (RFC 7519, section 4): pure, after its signature was verified.

Everything that is compared with the present is kept, so that a token checked once can be checked
again, for the price of three comparisons, whenever it comes back.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import msgspec

from steelyard.gateway.auth.config import JwtConfig
from steelyard.gateway.auth.refused import CredentialsRefused
from steelyard.gateway.caller import is_tenant_name

__all__ = ["Claims", "read_claims"]

_LATEST_S = 253_402_300_800
"""The year 10000: later is no time but a mistake, or an attempt at for ever."""

_MAX_TEXT = 256
_MAX_SCOPES = 256


@dataclass(frozen=True, slots=True)
class Claims:
    """Of one token, all checked but for what changes with time."""

    tenant: str
    plan: str | None
    scopes: frozenset[str]
    expires_s: float
    not_before_s: float
    """Neither `nbf` nor `iat` may lie in the future."""
    subject: str | None
    token_id: str | None

    def check_time(self, now_s: float, leeway_s: float) -> None:
        """Raise `CredentialsRefused` unless the token is valid at the Unix time `now_s`."""
        if now_s - leeway_s >= self.expires_s:
            raise CredentialsRefused("expired")
        if now_s + leeway_s < self.not_before_s:
            raise CredentialsRefused("not_yet_valid")


def read_claims(payload: bytes, config: JwtConfig) -> Claims:
    """The claims of a token whose signature is good. Raises `CredentialsRefused`."""
    claims = _decode(payload)
    if claims.get("iss") != config.issuer:
        raise CredentialsRefused("issuer")
    if config.audience.isdisjoint(_texts(claims, "aud")):
        raise CredentialsRefused("issuer")
    issued_s, expires_s = _time(claims, "iat"), _time(claims, "exp")
    if expires_s - issued_s > config.max_lifetime_s:
        raise CredentialsRefused("lifetime")
    not_before_s = issued_s if claims.get("nbf") is None else max(_time(claims, "nbf"), issued_s)
    tenant = _text(claims, config.tenant_claim)
    if tenant is None or not is_tenant_name(tenant):
        raise CredentialsRefused("claims")
    plan = None if config.plan_claim is None else _text(claims, config.plan_claim)
    return Claims(
        tenant=tenant,
        plan=plan,
        scopes=_scopes(claims, config.scope_claim),
        expires_s=expires_s,
        not_before_s=not_before_s,
        subject=_text(claims, "sub"),
        token_id=_text(claims, "jti"),
    )


def _decode(payload: bytes) -> Mapping[str, Any]:
    try:
        return _DECODER.decode(payload)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        raise CredentialsRefused("claims") from None


_DECODER = msgspec.json.Decoder(dict[str, Any])


def _time(claims: Mapping[str, Any], name: str) -> float:
    """A required NumericDate: a number, not a text that looks like one, within this age."""
    value = claims.get(name)
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise CredentialsRefused("claims")
    if not 0 <= value < _LATEST_S:  # nor NaN, which is neither above nor below anything
        raise CredentialsRefused("lifetime" if name == "exp" else "claims")
    return float(value)


def _text(claims: Mapping[str, Any], name: str) -> str | None:
    """An optional text of sensible length."""
    value = claims.get(name)
    if value is None:
        return None
    if not isinstance(value, str) or not 0 < len(value) <= _MAX_TEXT:
        raise CredentialsRefused("claims")
    return value


def _texts(claims: Mapping[str, Any], name: str) -> list[str]:
    """A text, or a list of them."""
    value = claims.get(name)
    values = [value] if isinstance(value, str) else value
    if not isinstance(values, list) or not all(isinstance(entry, str) for entry in values):
        raise CredentialsRefused("claims")
    return values


def _scopes(claims: Mapping[str, Any], name: str) -> frozenset[str]:
    """None when the claim is missing: then the token grants nothing here."""
    value = claims.get(name)
    if value is None:
        return frozenset()
    scopes = value.split(" ") if isinstance(value, str) else _texts(claims, name)
    if len(scopes) > _MAX_SCOPES:
        raise CredentialsRefused("claims")
    return frozenset(scopes)
