"""Settings of authentication, resolved. `cli.wiring` fills them in."""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

__all__ = ["AuthConfig", "JwtConfig"]


@dataclass(frozen=True, slots=True, kw_only=True)
class JwtConfig:
    """Tokens of one identity provider. Times are in seconds."""

    issuer: str
    audience: frozenset[str]
    """Any of these in `aud` will do."""
    jwks_url: str
    algorithms: frozenset[str] = frozenset({"RS256", "ES256", "EdDSA", "Ed25519"})
    """Names of RFC 7518, RFC 8037 and RFC 9864; signatures with a public key only."""
    token_types: frozenset[str] = frozenset({"at+jwt", "jwt"})
    """Values of `typ` in small letters; `jwt` also stands for none."""
    tenant_claim: str = "tenant"
    plan_claim: str | None = None
    scope_claim: str = "scope"
    leeway_s: float = 30.0
    max_lifetime_s: float = 86_400.0
    keys_ttl_s: float = 600.0
    keys_max_stale_s: float = 86_400.0
    keys_cooldown_s: float = 30.0
    """Between two fetches of the provider's keys, whatever tokens ask for."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AuthConfig:
    """Who is let in."""

    mode: Literal["none", "api_keys", "jwt"] = "none"
    keys_file: Path | None = None
    """Needed by `api_keys`."""
    jwt: JwtConfig | None = None
    """Needed by `jwt`."""
    revoked_file: Path | None = None
    """None: no token is revoked before it expires."""
    require_model_grant: bool = False
    files_poll_s: float = field(default=2.0)
    """How often files are looked at for changes."""
