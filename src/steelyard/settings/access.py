"""The sections of the deployment file that say who is let in, and who may look inside.

Values only; `rules` holds what they must not be together, the package `gateway.auth` obeys them.
How much a tenant may use is in `tenants`.
"""

from typing import Annotated, Literal
from urllib.parse import urlsplit

from pydantic import AfterValidator, Field

from steelyard.settings._section import Section
from steelyard.settings.hosts import Host, is_loopback
from steelyard.settings.quantities import BadValue

__all__ = ["AdminSettings", "AuthSettings", "JwtSettings"]

FilePath = Annotated[str, Field(min_length=1, max_length=4096)]
_Claim = Annotated[str, Field(min_length=1, max_length=256)]
_Text = Annotated[str, Field(min_length=1, max_length=2048)]

Algorithm = Literal[
    "RS256",
    "RS384",
    "RS512",
    "PS256",
    "PS384",
    "PS512",
    "ES256",
    "ES384",
    "ES512",
    "EdDSA",
    "Ed25519",
]
"""Signatures with a public key only: a shared secret would let every verifier issue tokens."""


def _key_set_url(value: str) -> str:
    try:
        parts = urlsplit(value)
        host = parts.hostname or ""
        is_whole = parts.scheme in {"http", "https"} and host and parts.port != 0
    except ValueError:  # brackets or a port out of range
        is_whole, host = False, ""
    if not is_whole:
        raise BadValue("is no URL", "use the jwks_uri of the provider, such as https://host/keys")
    if "@" in parts.netloc:
        raise BadValue("holds credentials", "name a URL that anybody may read")
    if parts.scheme == "http" and not is_loopback(host):
        raise BadValue(
            "is not encrypted, so that anybody on the way could put keys in", "use https"
        )
    return value


class JwtSettings(Section):
    """Tokens of an identity provider (RFC 7519, RFC 9068). For `auth.mode: jwt`."""

    issuer: _Text | None = None
    """The provider's name for itself; `iss` of every token must be equal to it."""
    audience: tuple[_Text, ...] = Field(default=(), strict=False, max_length=32)
    """This service's names at the provider; `aud` of every token must hold one of them."""
    jwks_url: Annotated[_Text, AfterValidator(_key_set_url)] | None = None
    """Where the provider publishes its keys: the `jwks_uri` of its
    `/.well-known/openid-configuration`. https, except on this machine."""
    algorithms: tuple[Algorithm, ...] = Field(
        default=("RS256", "ES256", "EdDSA", "Ed25519"), strict=False, min_length=1
    )
    """Signatures that are accepted."""
    token_types: tuple[_Text, ...] = Field(default=("at+jwt", "JWT"), strict=False, min_length=1)
    """Accepted values of `typ`. A token without one counts as `JWT`. `[at+jwt]` refuses ID tokens
    where the provider marks access tokens as RFC 9068 asks."""
    tenant_claim: _Claim = "tenant"
    """The claim that names the tenant. Required in every token; headers are never asked."""
    plan_claim: _Claim | None = None
    """The claim that chooses among `tenants.plans`; `null`: none does."""
    scope_claim: _Claim = "scope"
    """The claim with the grants: a text with blanks between them, or a list. `llm:infer` allows
    requests, `llm:admin` metrics and administration, `model:<name>` a model."""
    leeway_s: Annotated[float, Field(ge=0, le=300, allow_inf_nan=False)] = 30.0
    """How far the provider's clock and ours may differ."""
    max_lifetime_s: Annotated[float, Field(gt=0, le=31_536_000, allow_inf_nan=False)] = 86_400.0
    """A token that is valid for longer, from `iat` to `exp`, is refused: it could not be taken
    back in time."""
    keys_ttl_s: Annotated[float, Field(ge=60, le=86_400, allow_inf_nan=False)] = 600.0
    """How long published keys are trusted; they are fetched again, in the background, after half
    of it."""
    keys_max_stale_s: Annotated[float, Field(ge=60, le=2_592_000, allow_inf_nan=False)] = 86_400.0
    """While the provider cannot be reached, the last keys are trusted for this long."""


class AuthSettings(Section):
    """Who may use the API."""

    mode: Literal["none", "api_keys", "jwt"] = "none"
    """`none`: whoever reaches the port. `api_keys`: holders of keys in `keys_file`. `jwt`: holders
    of tokens of an identity provider."""
    keys_file: FilePath | None = None
    """For `api_keys`: one JSON object per line, as `steelyard keys new` writes them. Read again
    within seconds of a change."""
    jwt: JwtSettings = JwtSettings()
    revoked_file: FilePath | None = None
    """For `jwt`: lines `jti ID` or `sub NAME`; such tokens are refused. Read again within seconds
    of a change. `null`: none are."""
    require_model_grant: bool = False
    """`true`: only models that `model:<name>` (or `model:*`) grants may be used. `false`: who has
    no such grant at all may use every model."""


class AdminSettings(Section):
    """The listener for administration and metrics."""

    host: Host = "127.0.0.1"
    """Address of `port`. Any but this machine's own needs `gateway.auth.mode`, or `insecure`."""
    port: Annotated[int, Field(ge=0, le=65_535)] | None = None
    """Port to listen on; 0 takes a free one, which the log names. `null`: none. `/admin/` needs
    the grant `llm:admin` here; `/metrics` needs none."""
    socket: FilePath | None = None
    """Unix socket to listen on instead; only this user can connect, and needs no credentials."""
