"""Which requests may share prefix-cache entries: those of one tenant, or fewer.

A shared cache tells by its timing what others have asked; equal salts only within a tenant close
that channel. A client may narrow its sharing with a salt of its own, never widen it: both go
through one keyed hash (HMAC, RFC 2104), so no client can guess or choose another tenant's salt.
"""

import hashlib
import hmac
from functools import lru_cache

__all__ = ["CacheSalts"]


class CacheSalts:
    """Derives salts from one secret."""

    def __init__(self, secret: bytes) -> None:
        self._secret = secret
        self._of_tenant = lru_cache(maxsize=4096)(self._derive)

    def salt(self, tenant: str, client_salt: str | None = None) -> str:
        """The `cache_salt` of a request: 32 hexadecimal digits."""
        if client_salt is None:
            return self._of_tenant(tenant, None)
        return self._derive(tenant, client_salt)

    def _derive(self, tenant: str, client_salt: str | None) -> str:
        # The length keeps ("ab", "c") and ("a", "bc") apart; the marker keeps None and "" apart.
        name = tenant.encode()
        message = len(name).to_bytes(4, "big") + name
        if client_salt is not None:
            message += b"\x00" + client_salt.encode()
        return hmac.new(self._secret, message, hashlib.sha256).hexdigest()[:32]
