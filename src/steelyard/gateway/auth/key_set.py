"""The public keys of an identity provider (JWK Set, RFC 7517), reduced to those of use here.

A key is good for the algorithms that its type, its curve and its own `alg` allow, and for those
alone: that a token asks for another one with it is the oldest trick (RFC 8725, section 3.1).
Shared secrets, encryption keys and small RSA keys are left out; private members are not even read.
"""

import base64
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import msgspec
from joserfc.errors import JoseError
from joserfc.jwk import ECKey, Key, OKPKey, RSAKey

__all__ = ["KeySet", "VerificationKey", "parse_key_set"]

_MAX_KEYS = 100
_RSA_BITS = range(2048, 8193)
"""Smaller ones can be broken, and the time that larger ones take is the sender's to choose."""

_RSA = frozenset({"RS256", "RS384", "RS512", "PS256", "PS384", "PS512"})
_EDWARDS = frozenset({"EdDSA", "Ed25519"})
"""Two names for one thing: RFC 8037's and RFC 9864's."""
_CURVES = {
    ("EC", "P-256"): frozenset({"ES256"}),
    ("EC", "P-384"): frozenset({"ES384"}),
    ("EC", "P-521"): frozenset({"ES512"}),
    ("OKP", "Ed25519"): _EDWARDS,
}
_PUBLIC = {"RSA": ("n", "e"), "EC": ("crv", "x", "y"), "OKP": ("crv", "x")}
_TYPES: dict[str, type[RSAKey] | type[ECKey] | type[OKPKey]] = {
    "RSA": RSAKey,
    "EC": ECKey,
    "OKP": OKPKey,
}


@dataclass(frozen=True, slots=True)
class VerificationKey:
    """One key, and what it may verify."""

    kid: str | None
    algorithms: frozenset[str]
    key: Key
    fields: tuple[str, ...]
    """What makes it this key, to tell whether a set has changed."""


@dataclass(frozen=True, slots=True)
class KeySet:
    """At least one usable key."""

    keys: tuple[VerificationKey, ...]

    def find(self, kid: str | None, algorithm: str) -> VerificationKey | None:
        """The key for a token's header. One without a key id is only unambiguous when a single
        key fits."""
        fitting = [key for key in self.keys if algorithm in key.algorithms]
        if kid is None:
            return fitting[0] if len(fitting) == 1 else None
        return next((key for key in fitting if key.kid == kid), None)

    def is_same_as(self, other: "KeySet") -> bool:
        """True when both hold the same keys."""
        return [_identity(key) for key in self.keys] == [_identity(key) for key in other.keys]


def parse_key_set(body: bytes, algorithms: frozenset[str]) -> KeySet:
    """The usable keys. Raises `ValueError` when `body` is no key set, or has none."""
    try:
        entries = _DECODER.decode(body).keys
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise ValueError("the answer is no JSON Web Key Set") from error
    if len(entries) > _MAX_KEYS:
        raise ValueError(f"the set holds {len(entries)} keys, more than {_MAX_KEYS}")
    usable = [key for entry in entries if (key := _usable(entry, algorithms)) is not None]
    if not usable:
        raise ValueError(f"none of the {len(entries)} keys can be used")
    return KeySet(tuple(usable))


class _Document(msgspec.Struct):
    keys: list[dict[str, Any]]


_DECODER = msgspec.json.Decoder(_Document)


def _usable(entry: Mapping[str, Any], wanted: frozenset[str]) -> VerificationKey | None:
    kid, kind = entry.get("kid"), entry.get("kty")
    if not isinstance(kind, str) or kind not in _TYPES or not isinstance(kid, str | None):
        return None
    algorithms = _algorithms(entry) & wanted
    public = {n: value for n in _PUBLIC[kind] if isinstance(value := entry.get(n), str)}
    if not algorithms or len(public) < len(_PUBLIC[kind]):
        return None
    try:
        if kind == "RSA" and _bits(public["n"]) not in _RSA_BITS:
            return None
        key = _TYPES[kind].import_key({"kty": kind, **public})
    except (JoseError, ValueError, TypeError):
        return None
    return VerificationKey(kid, algorithms, key, tuple(public.values()))


def _bits(number: str) -> int:
    """Length of a number in base64url; looked at first, because making such a key takes time."""
    data = base64.urlsafe_b64decode(number + "=" * (-len(number) % 4))
    return int.from_bytes(data).bit_length()


def _algorithms(entry: Mapping[str, Any]) -> frozenset[str]:
    """What the key may verify; empty when it is not for signatures."""
    operations = entry.get("key_ops")
    if entry.get("use", "sig") != "sig" or (
        operations is not None and (not isinstance(operations, list) or "verify" not in operations)
    ):
        return frozenset()
    kind, own = entry["kty"], entry.get("alg")
    able = _RSA if kind == "RSA" else _CURVES.get((kind, str(entry.get("crv"))), frozenset())
    if own is None:
        return able
    return able & (_EDWARDS if own in _EDWARDS else {own}) if isinstance(own, str) else frozenset()


def _identity(key: VerificationKey) -> tuple[object, ...]:
    return key.kid, key.algorithms, key.fields
