"""Routing policies by the names that settings use."""

from steelyard.policies.config import RoutingConfig
from steelyard.policies.routing.affinity import SessionAffinity
from steelyard.policies.routing.least_ttft import LeastTtft
from steelyard.policies.routing.simple import LeastLoaded, RoundRobin
from steelyard.policies.routing.trip import RoutingPolicy

__all__ = ["make_routing"]


def make_routing(config: RoutingConfig, *, seed: int) -> RoutingPolicy:
    """The policy that `config` names, with sessions kept where they were. `seed`: of its chance."""
    inner: RoutingPolicy
    match config.policy:
        case "least_ttft":
            inner = LeastTtft(config, seed=seed)
        case "least_loaded":
            inner = LeastLoaded(config, seed=seed)
        case "round_robin":
            inner = RoundRobin()
    return SessionAffinity(inner, config)
