"""The earliest predicted first token, within the bounds of a fair share.

One idea: everything that makes a replica a good or a bad choice is seconds until the first token.
A prompt it knows is work it need not do, a queue is work before ours, full memory is waiting for
others' ends, distance is delay. Only what the future holds is not in those seconds, so nobody is
given more than a bounded share of recent work, and among equals the least worked is taken.
"""

import random

from steelyard.policies.config import RoutingConfig
from steelyard.policies.prefix_map import PrefixMap
from steelyard.policies.routing.pool import Pool
from steelyard.policies.routing.target import Target
from steelyard.policies.routing.trip import Trip
from steelyard.policies.routing.work import WorkLedger

__all__ = ["LeastTtft"]


class LeastTtft:
    """`RoutingPolicy` by prediction."""

    def __init__(self, config: RoutingConfig, *, seed: int) -> None:
        self._config = config
        self._chance = random.Random(seed)  # noqa: S311 (a choice among replicas is no secret)
        self.prefixes = PrefixMap(
            block_tokens=config.block_tokens, max_blocks=config.max_blocks, seed=seed
        )
        self._work = WorkLedger(imbalance=config.imbalance, window_s=config.imbalance_window_s)
        self._everyone: set[Target] = set()

    def pick(self, trip: Trip, pool: Pool, now_s: float) -> Target | None:
        """See `RoutingPolicy`."""
        if trip.keys is None:
            trip.keys = self.prefixes.keys(trip.token_ids, trip.salt)
        trip.overlaps = self.prefixes.overlaps(trip.keys, limit=self._config.scan_limit)
        candidates = [one for one in self._candidates(trip, pool) if one.index not in trip.excluded]
        if not candidates and len(pool) > self._config.scan_limit:
            candidates = [one for one in pool if one.index not in trip.excluded]
        if not candidates:
            return None
        bound = self._work.bound(pool.capacity, len(pool), now_s)
        fair = [one for one in candidates if one.work <= bound * one.capacity]
        return self._best(trip, fair or candidates, now_s)

    def note_sent(self, trip: Trip, target: Target, now_s: float) -> None:
        """See `RoutingPolicy`."""
        work = trip.new_tokens(target) + trip.output_tokens
        self._work.add(target, work, now_s, self._everyone)
        if trip.keys is None:
            trip.keys = self.prefixes.keys(trip.token_ids, trip.salt)
        self.prefixes.sent(target.index, trip.keys)

    def note_joined(self, target: Target, pool: Pool) -> None:
        """See `RoutingPolicy`."""
        self._everyone.add(target)
        self.prefixes.add(target.index, capacity_tokens=target.capacity_tokens)
        self._work.join(target, pool.capacity)

    def note_restarted(self, target: Target) -> None:
        """See `RoutingPolicy`."""
        self.prefixes.forget(target.index)

    def note_removed(self, target: Target) -> None:
        """See `RoutingPolicy`."""
        self._everyone.discard(target)
        self.prefixes.remove(target.index)
        self._work.forget(target)

    def _candidates(self, trip: Trip, pool: Pool) -> list[Target]:
        """All targets of a small pool; of a large one those that know the prompt, and some more.

        Two drawn by chance would do to keep queues short (Mitzenmacher 2001).
        """
        if len(pool) <= self._config.scan_limit:
            return list(pool)
        drawn = pool.draw(self._config.draws, self._chance)
        known = (pool[index] for index in trip.overlaps if index in pool)
        return list({one.index: one for one in (*known, *drawn)}.values())

    def _best(self, trip: Trip, candidates: list[Target], now_s: float) -> Target:
        predicted = [
            (one.predict_ttft_s(trip.new_tokens(one), trip.held_tokens, now_s), one)
            for one in candidates
        ]
        config = self._config
        limit_s = min(seconds for seconds, _ in predicted)
        limit_s += config.tolerance * limit_s + config.tolerance_s
        near = (one for seconds, one in predicted if seconds <= limit_s)
        return min(near, key=lambda one: (one.work / one.capacity, one.in_flight, one.index))
