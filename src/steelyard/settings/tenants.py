"""The sections of the deployment file that say how much each tenant may use.

Values only; the package `gateway.limits` obeys them. Who is which tenant is decided by credentials
(`access`), never by what a request says about itself.
"""

import re
from typing import Annotated, Literal
from urllib.parse import urlsplit

from pydantic import AfterValidator, Field

from steelyard.settings._section import Section
from steelyard.settings.access import FilePath
from steelyard.settings.quantities import BadValue, Count, Seconds

__all__ = ["RedisSettings", "TenantLimitSettings", "TenantOwnSettings", "TenantsSettings"]

_PerMinute = Annotated[int, Field(ge=1, le=100_000_000)]
_Tokens = Annotated[int, Field(ge=1, le=16_777_216)]
_Priority = Literal["high", "normal", "low"]
_Inherit = Literal["default"]


class TenantLimitSettings(Section):
    """Limits of every tenant that has none of its own. `null`: unlimited."""

    requests_per_minute: _PerMinute | None = None
    """Requests. Somebody who was idle may send a minute's worth at once."""
    tokens_per_minute: _PerMinute | None = None
    """Tokens, prompts and outputs together. What a request may produce is reserved at its start;
    what it did not use is given back at its end."""
    concurrent_requests: Count | None = None
    """Requests at the same time, waiting ones included."""
    max_tokens: _Tokens | None = None
    """Highest `max_tokens` of a request, below that of `gateway.limits.max_tokens`."""
    context_tokens: _Tokens | None = None
    """Prompt and output of one sequence together, below the model's own limit."""
    priority: _Priority = "normal"
    """Whose waiting requests go first. A request's own `priority` counts within the class."""


class TenantOwnSettings(Section):
    """Limits of one tenant or plan. `default` takes the value of `tenants.default`."""

    requests_per_minute: _Inherit | _PerMinute | None = "default"
    """As in `tenants.default`."""
    tokens_per_minute: _Inherit | _PerMinute | None = "default"
    """As in `tenants.default`."""
    concurrent_requests: _Inherit | Count | None = "default"
    """As in `tenants.default`."""
    max_tokens: _Inherit | _Tokens | None = "default"
    """As in `tenants.default`."""
    context_tokens: _Inherit | _Tokens | None = "default"
    """As in `tenants.default`."""
    priority: _Inherit | _Priority = "default"
    """As in `tenants.default`."""

    def over(self, default: TenantLimitSettings) -> TenantLimitSettings:
        """The limits, with `default` filled in."""
        own = {name: value for name, value in self if value != "default"}
        return default.model_copy(update=own)


_REDIS_URL = re.compile(r"(redis|rediss)://[^\s]+|unix:///[^\s]+")


def _redis_url(value: str) -> str:
    try:
        has_password = urlsplit(value).password is not None
    except ValueError:
        has_password = False
    if has_password:
        raise BadValue("holds a password", "put the password into the file of password_file")
    if not _REDIS_URL.fullmatch(value):
        raise BadValue(
            "is no address of Redis", "use redis://host:6379/0, rediss://… or unix:///path"
        )
    return value


class RedisSettings(Section):
    """A Redis server through which workers and machines share the tenants' budgets."""

    url: Annotated[str, Field(min_length=1, max_length=2048), AfterValidator(_redis_url)] | None = (
        None
    )
    """`redis://host:6379/0`, `rediss://…` with TLS, or `unix:///path`. `null`: every process keeps
    budgets of its own."""
    password_file: FilePath | None = None
    """File that holds the password alone; `null`: none is sent."""
    prefix: Annotated[str, Field(min_length=1, max_length=64, pattern=r"^[\w.:-]+$")] = "steelyard"
    """Begins every key, so that several services can share a server."""
    timeout_s: Seconds = 0.1
    """A server that takes longer counts as away: requests are then counted in each process alone,
    until it is back."""


class TenantsSettings(Section):
    """How much each tenant may use. A tenant's own entry counts before its plan's, and that before
    the default."""

    default: TenantLimitSettings = TenantLimitSettings()
    plans: dict[str, TenantOwnSettings] = Field(default_factory=dict)
    """Limits by plan, for credentials that name one."""
    named: dict[str, TenantOwnSettings] = Field(default_factory=dict)
    """Limits by tenant."""
    assumed_tokens: _Tokens = 1024
    """Output that is reserved for a request that names no `max_tokens`; what it really uses is
    settled at its end."""
    redis: RedisSettings = RedisSettings()
