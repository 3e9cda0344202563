"""Routing that knows nothing of prompts: fewest requests, or everyone in turn."""

import random

from steelyard.policies.config import RoutingConfig
from steelyard.policies.routing.pool import Pool
from steelyard.policies.routing.target import Target
from steelyard.policies.routing.trip import Trip

__all__ = ["LeastLoaded", "RoundRobin"]


class _Blind:
    """`RoutingPolicy` without a memory of prompts."""

    def note_sent(self, trip: Trip, target: Target, now_s: float) -> None:
        """Nothing to note."""

    def note_joined(self, target: Target, pool: Pool) -> None:
        """Nothing to note."""

    def note_restarted(self, target: Target) -> None:
        """Nothing to note."""

    def note_removed(self, target: Target) -> None:
        """Nothing to note."""


class LeastLoaded(_Blind):
    """Fewest requests in flight for its capacity; of many, the best of a few drawn by chance."""

    def __init__(self, config: RoutingConfig, *, seed: int) -> None:
        self._config = config
        self._chance = random.Random(seed)  # noqa: S311 (a choice among replicas is no secret)

    def pick(self, trip: Trip, pool: Pool, now_s: float) -> Target | None:
        """See `RoutingPolicy`."""
        if len(pool) > self._config.scan_limit:
            drawn = pool.draw(self._config.draws, self._chance)
            found = _least_loaded(trip, drawn, self._chance)
            if found is not None:
                return found
        return _least_loaded(trip, list(pool), self._chance)


class RoundRobin(_Blind):
    """Everyone in turn; who has half the capacity is passed over every other time."""

    def __init__(self) -> None:
        self._place = 0
        self._credit: dict[int, float] = {}

    def pick(self, trip: Trip, pool: Pool, now_s: float) -> Target | None:
        """See `RoutingPolicy`."""
        able = [one for one in pool if one.index not in trip.excluded]
        if not able:
            return None
        largest = max(one.capacity for one in able)
        while True:
            self._place = (self._place + 1) % len(pool)
            target = pool.at(self._place)
            if target.index in trip.excluded:
                continue
            credit = self._credit.get(target.index, 0.0) + target.capacity / largest
            self._credit[target.index] = credit - 1.0 if credit >= 1.0 else credit
            if credit >= 1.0:
                return target

    def note_removed(self, target: Target) -> None:
        """See `RoutingPolicy`."""
        self._credit.pop(target.index, None)


def _least_loaded(trip: Trip, targets: list[Target], chance: random.Random) -> Target | None:
    able = [one for one in targets if one.index not in trip.excluded]
    if not able:
        return None
    return min(able, key=lambda one: ((one.in_flight + 1) / one.capacity, chance.random()))
