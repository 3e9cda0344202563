"""API keys: what they look like, what is kept of them, and who holds one.

    sk-5f2a9c04d1e7-kY3…        the key, known to its holder alone
       └─ id ─────┘ └ secret    256 random bits

Only SHA-256 of the key is kept. That is enough for a secret that nobody can guess, where a slow
hash protects passwords that people can. The id finds the entry, so that the hashes are compared in
constant time, and it is what logs may show. A key of another maker is found by the beginning of
its hash instead.
"""

import datetime
import hashlib
import hmac
import re
import secrets
from collections.abc import Callable, Iterable, Mapping
from typing import Annotated

import msgspec

from steelyard.gateway.auth.refused import CredentialsRefused
from steelyard.gateway.caller import Caller, caller_of, is_tenant_name

__all__ = [
    "MIN_FOREIGN_CHARS",
    "KeyEntry",
    "KeyTable",
    "entry_line",
    "hash_key",
    "new_key",
    "parse_keys",
]

MIN_FOREIGN_CHARS = 24
"""Of a key that we did not make; a shorter one could be guessed from its hash."""

_ID_BYTES = 6
_SECRET_BYTES = 32
_KEY = re.compile(r"sk-([0-9a-f]{12})-[A-Za-z0-9_-]{43}")

_Hex = Annotated[str, msgspec.Meta(pattern=r"^[0-9a-f]{64}$")]
_Id = Annotated[str, msgspec.Meta(pattern=r"^[0-9a-f]{12}$")]


class KeyEntry(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What is kept of one key: a line of the keys file."""

    id: _Id
    sha256: _Hex
    tenant: str
    scopes: tuple[str, ...] = ("llm:infer",)
    plan: str | None = None
    expires: Annotated[datetime.datetime, msgspec.Meta(tz=True)] | None = None
    note: str = ""
    """For people."""


def new_key() -> str:
    """A fresh key. It is not kept anywhere."""
    return f"sk-{secrets.token_hex(_ID_BYTES)}-{secrets.token_urlsafe(_SECRET_BYTES)}"


def hash_key(key: str) -> tuple[str, str]:
    """Id and SHA-256 of a key, ours or another maker's."""
    digest = hashlib.sha256(key.encode()).hexdigest()
    match = _KEY.fullmatch(key)
    return (match[1] if match else digest[: 2 * _ID_BYTES]), digest


def entry_line(entry: KeyEntry) -> str:
    """The entry as the keys file has it, without what is left at its default."""
    fields = {
        name: value
        for name, value in msgspec.structs.asdict(entry).items()
        if name in ("id", "sha256", "tenant") or value != _DEFAULTS[name]
    }
    return msgspec.json.encode(fields).decode() + "\n"


def parse_keys(data: bytes) -> dict[str, KeyEntry]:
    """Entries by id. Raises `ValueError` that names the line and never quotes it."""
    entries: dict[str, KeyEntry] = {}
    decoder = msgspec.json.Decoder(KeyEntry)
    for number, line in enumerate(data.splitlines(), start=1):
        if not line.strip() or line.lstrip().startswith(b"#"):
            continue
        try:
            entry = decoder.decode(line)
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
            raise ValueError(f"line {number}: {_reason(error)}") from None
        if not is_tenant_name(entry.tenant):
            raise ValueError(f"line {number}: tenant must be 1 to 128 visible ASCII characters")
        if entry.id in entries:
            raise ValueError(f"line {number}: the id {entry.id} occurs twice")
        entries[entry.id] = entry
    return entries


class KeyTable:
    """Recognises the holders of the keys in `entries`, which may be exchanged at any time."""

    def __init__(
        self,
        entries: Callable[[], Mapping[str, KeyEntry]],
        *,
        unix_time: Callable[[], float],
        require_model_grant: bool,
    ) -> None:
        self._entries = entries
        self._unix_time = unix_time
        self._require_model_grant = require_model_grant

    async def identify(self, key: str) -> Caller:
        """The holder of `key`. Raises `CredentialsRefused`."""
        key_id, digest = hash_key(key)
        entry = self._entries().get(key_id)
        # Somebody who guesses ids must not learn from our haste which of them exist.
        expected = _NO_DIGEST if entry is None else entry.sha256
        is_right = hmac.compare_digest(digest, expected)
        if entry is None or not is_right:
            raise CredentialsRefused("key")
        if entry.expires is not None and entry.expires.timestamp() <= self._unix_time():
            raise CredentialsRefused("expired")
        return _caller(entry.tenant, entry.plan, entry.scopes, self._require_model_grant)


_NO_DIGEST = "0" * 64
_DEFAULTS = {
    field.name: field.default
    for field in msgspec.structs.fields(KeyEntry)
    if field.default is not msgspec.NODEFAULT
}


def _caller(tenant: str, plan: str | None, scopes: Iterable[str], strict: bool) -> Caller:
    return caller_of(tenant, plan, frozenset(scopes), require_model_grant=strict)


def _reason(error: Exception) -> str:
    """Where and why, without values: msgspec's own messages quote none."""
    return "it is nested too deeply" if isinstance(error, RecursionError) else str(error)
