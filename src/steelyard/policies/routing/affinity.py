"""Sessions stay where they were, as long as that costs little.

Prefix routing finds a conversation's replica by itself; this also serves clients that name their
session and policies that know no prompts. The name is the client's, so it only ever matters among
requests of one salt, which means of one tenant.
"""

from collections import OrderedDict

from steelyard.policies.config import RoutingConfig
from steelyard.policies.routing.pool import Pool
from steelyard.policies.routing.target import Target
from steelyard.policies.routing.trip import RoutingPolicy, Trip

__all__ = ["SessionAffinity"]


class SessionAffinity:
    """`RoutingPolicy` around another one."""

    def __init__(self, inner: RoutingPolicy, config: RoutingConfig) -> None:
        self.inner = inner
        self._config = config
        self._homes: OrderedDict[tuple[str, str], int] = OrderedDict()

    def __len__(self) -> int:
        """Sessions remembered."""
        return len(self._homes)

    def pick(self, trip: Trip, pool: Pool, now_s: float) -> Target | None:
        """See `RoutingPolicy`."""
        best = self.inner.pick(trip, pool, now_s)
        home = self._homes.get((trip.salt, trip.session)) if trip.session else None
        if best is None or home is None or home == best.index:
            return best
        if home not in pool or home in trip.excluded:
            return best
        return pool[home] if self._is_cheap(trip, pool[home], best, now_s) else best

    def note_sent(self, trip: Trip, target: Target, now_s: float) -> None:
        """See `RoutingPolicy`."""
        self.inner.note_sent(trip, target, now_s)
        if trip.session:
            key = (trip.salt, trip.session)
            self._homes[key] = target.index
            self._homes.move_to_end(key)
            if len(self._homes) > self._config.max_sessions:
                self._homes.popitem(last=False)

    def note_joined(self, target: Target, pool: Pool) -> None:
        """See `RoutingPolicy`."""
        self.inner.note_joined(target, pool)

    def note_restarted(self, target: Target) -> None:
        """See `RoutingPolicy`."""
        self.inner.note_restarted(target)

    def note_removed(self, target: Target) -> None:
        """See `RoutingPolicy`."""
        self.inner.note_removed(target)

    def _is_cheap(self, trip: Trip, home: Target, best: Target, now_s: float) -> bool:
        home_s = home.predict_ttft_s(trip.new_tokens(home), trip.held_tokens, now_s)
        best_s = best.predict_ttft_s(trip.new_tokens(best), trip.held_tokens, now_s)
        return home_s <= self._config.affinity_factor * best_s + self._config.affinity_s
