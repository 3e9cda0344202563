"""From settings to a store of budgets. The client of Redis is only imported where it is used."""

from steelyard.contract import Clock
from steelyard.gateway.limits.config import TenantsConfig
from steelyard.gateway.limits.store import LimitStore, MemoryStore
from steelyard.telemetry.access_meter import AccessMeter

__all__ = ["build_store"]


def build_store(config: TenantsConfig, clock: Clock, meter: AccessMeter) -> LimitStore:
    """This process's own, or the one shared through Redis."""
    if config.redis is None:
        return MemoryStore(clock)
    from steelyard.gateway.limits.redis_store import RedisStore
    from steelyard.gateway.limits.shared_store import SharedStore

    return SharedStore(RedisStore(config.redis, clock), clock=clock, meter=meter)
