"""Targets and trips for the routing tests."""

from typing import Any

from steelyard.policies.config import RoutingConfig
from steelyard.policies.routing import Pool, RoutingPolicy, Target, Trip
from steelyard.policies.routing.least_ttft import LeastTtft
from steelyard.policies.ttft_model import TtftModel

__all__ = ["give", "joined", "least_ttft", "trip"]


def trip(*blocks: int, output_tokens: float = 1.0, **more: Any) -> Trip:
    """A request whose prompt has these blocks of 64 equal tokens."""
    token_ids = tuple(token for block in blocks for token in [block] * 64)
    return Trip(token_ids, output_tokens, **more)


def joined(policy: RoutingPolicy, count: int, **more: Any) -> Pool:
    """A pool of equal targets that the policy knows."""
    pool = Pool()
    everybody = TtftModel()
    for index in range(count):
        target = Target(index, model=TtftModel(parent=everybody), **more)
        pool.add(target)
        policy.note_joined(target, pool)
    return pool


def least_ttft(seed: int = 0, **changes: Any) -> LeastTtft:
    return LeastTtft(RoutingConfig(**changes), seed=seed)


def give(policy: RoutingPolicy, pool: Pool, request: Trip, now_s: float = 0.0) -> Target:
    """Route a request and have it answered at once."""
    target = policy.pick(request, pool, now_s)
    assert target is not None
    policy.note_sent(request, target, now_s)
    return target
