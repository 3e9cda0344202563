"""From resolved settings to the door's configuration: who is let in, how much, and how it behaves.

Pure but for the files that settings name. Engines are wired in `wiring`; the door itself is
`gateway.app`.
"""

from dataclasses import replace
from pathlib import Path

from steelyard.gateway.auth.building import build_guard
from steelyard.gateway.auth.config import AuthConfig, JwtConfig
from steelyard.gateway.batches.config import BatchesConfig
from steelyard.gateway.config import GatewayConfig, HttpLimits, RequestLimits
from steelyard.gateway.http import require_address
from steelyard.gateway.limits.config import RedisConfig, TenantRules, TenantsConfig
from steelyard.policies.budgets import Limits
from steelyard.settings import Deployment, read_secret
from steelyard.settings.access import AuthSettings, JwtSettings
from steelyard.settings.gateway import GatewaySettings, LimitsSettings
from steelyard.settings.paths import expanded
from steelyard.settings.tenants import RedisSettings, TenantLimitSettings, TenantsSettings
from steelyard.telemetry import Metrics

__all__ = ["gateway_config", "require_door"]

_WAITING_PER_RUNNING = 4
"""Requests given to the engine beyond those that run: enough that a freed place is filled at once,
few enough that waiting happens at the door."""


def gateway_config(deployment: Deployment) -> GatewayConfig:
    """What the door is told. Raises `SettingsError` for a file that cannot be read."""
    gateway = deployment.gateway
    config = GatewayConfig(
        host=gateway.host,
        port=gateway.port,
        auth=_auth(gateway.auth),
        tenants=_tenants(deployment.tenants),
        has_metrics=_has_metrics(gateway),
        cors_origins=gateway.cors.origins,
        http=_http(gateway.limits),
        requests=_requests(gateway.limits),
        batches=_batches(gateway),
        max_in_flight=_WAITING_PER_RUNNING * _running_limit(deployment),
        max_queue=gateway.limits.max_queue,
        queue_timeout_s=gateway.limits.queue_timeout_s,
        keepalive_comment_s=gateway.keepalive_comment_s,
        stall_timeout_s=gateway.stall_timeout_s,
        shutdown_grace_s=gateway.shutdown_grace_s,
    )
    file = deployment.kv_cache.salt_secret_file
    if file is None:
        return config
    return replace(config, cache_secret=read_secret(file, key="kv_cache.salt_secret_file"))


def _running_limit(deployment: Deployment) -> int:
    """Of all replicas that serve together."""
    groups = deployment.replica_groups.values()
    serving = sum(group.replicas for group in groups if group.standby_of is None)
    return serving * deployment.batching.running_limit


def require_door(config: GatewayConfig, admin: GatewayConfig | None) -> None:
    """Raise `SettingsError` when an address cannot be had, or a file of the settings cannot be
    used. Keeps nothing. `admin` None: there is no listener for administration."""
    build_guard(config.auth, Metrics().access)
    require_address(config)
    if admin is not None and admin.unix_socket is None:
        require_address(admin, setting="gateway.admin")


def _has_metrics(gateway: GatewaySettings) -> bool:
    """On this port, that is; the other place is the listener for administration."""
    has_other = gateway.admin.port is not None or gateway.admin.socket is not None
    return gateway.metrics == "door" or (gateway.metrics == "auto" and not has_other)


def _http(limits: LimitsSettings) -> HttpLimits:
    return HttpLimits(
        max_header_bytes=limits.max_header_bytes,
        header_timeout_s=limits.header_timeout_s,
        max_body_bytes=limits.max_body_bytes,
        body_timeout_s=limits.body_timeout_s,
        idle_timeout_s=limits.idle_timeout_s,
        write_timeout_s=limits.write_timeout_s,
        max_connections=limits.max_connections,
    )


def _requests(limits: LimitsSettings) -> RequestLimits:
    return RequestLimits(
        max_tokens=limits.max_tokens,
        default_max_tokens=limits.default_max_tokens,
        max_n=limits.max_n,
        max_sequences=limits.max_sequences,
        max_logprobs=limits.max_logprobs,
        max_stop=limits.max_stop,
        max_stop_chars=limits.max_stop_chars,
        max_logit_bias=limits.max_logit_bias,
        max_messages=limits.max_messages,
    )


def _batches(gateway: GatewaySettings) -> BatchesConfig | None:
    batches = gateway.batches
    if batches.folder is None:
        return None
    return BatchesConfig(
        folder=expanded(batches.folder),
        concurrency=batches.concurrency,
        file_bytes=batches.max_file_bytes,
        line_bytes=gateway.limits.max_body_bytes,
        max_lines=batches.max_lines,
        tenant_bytes=batches.max_tenant_bytes,
        open_batches=batches.max_open,
    )


def _auth(auth: AuthSettings) -> AuthConfig:
    return AuthConfig(
        mode=auth.mode,
        keys_file=_path(auth.keys_file),
        jwt=_jwt(auth.jwt) if auth.mode == "jwt" else None,
        revoked_file=_path(auth.revoked_file),
        require_model_grant=auth.require_model_grant,
    )


def _jwt(jwt: JwtSettings) -> JwtConfig:
    assert jwt.issuer is not None and jwt.jwks_url is not None, "the rules of the settings say so"
    return JwtConfig(
        issuer=jwt.issuer,
        audience=frozenset(jwt.audience),
        jwks_url=jwt.jwks_url,
        algorithms=frozenset(jwt.algorithms),
        token_types=frozenset(t.lower().removeprefix("application/") for t in jwt.token_types),
        tenant_claim=jwt.tenant_claim,
        plan_claim=jwt.plan_claim,
        scope_claim=jwt.scope_claim,
        leeway_s=jwt.leeway_s,
        max_lifetime_s=jwt.max_lifetime_s,
        keys_ttl_s=jwt.keys_ttl_s,
        keys_max_stale_s=jwt.keys_max_stale_s,
    )


def _tenants(tenants: TenantsSettings) -> TenantsConfig:
    default = tenants.default
    return TenantsConfig(
        default=_rules(default),
        plans={name: _rules(own.over(default)) for name, own in tenants.plans.items()},
        named={name: _rules(own.over(default)) for name, own in tenants.named.items()},
        assumed_tokens=tenants.assumed_tokens,
        redis=_redis(tenants.redis),
    )


def _rules(limits: TenantLimitSettings) -> TenantRules:
    return TenantRules(
        limits=Limits(
            requests_per_minute=limits.requests_per_minute,
            tokens_per_minute=limits.tokens_per_minute,
            concurrent_requests=limits.concurrent_requests,
        ),
        max_tokens=limits.max_tokens,
        context_tokens=limits.context_tokens,
        priority_class=limits.priority,
    )


def _redis(redis: RedisSettings) -> RedisConfig | None:
    if redis.url is None:
        return None
    password = None
    if redis.password_file is not None:
        key = "tenants.redis.password_file"
        # It may be short: whoever runs that server has chosen it.
        password = read_secret(redis.password_file, key=key, min_bytes=1).decode()
    return RedisConfig(
        url=redis.url, password=password, prefix=redis.prefix, timeout_s=redis.timeout_s
    )


def _path(name: str | None) -> Path | None:
    return None if name is None else expanded(name)
