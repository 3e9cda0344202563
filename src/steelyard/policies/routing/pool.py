"""The targets that may be chosen now: a set that can also be drawn from by chance.

Adding and removing take constant time; the order carries no meaning.
"""

import random
from collections.abc import Iterator

from steelyard.policies.routing.target import Target

__all__ = ["Pool"]


class Pool:
    """Targets, each at most once."""

    def __init__(self, targets: "tuple[Target, ...]" = ()) -> None:
        self._targets: list[Target] = []
        self._places: dict[int, int] = {}
        """Target index → place in the list."""
        self.capacity = 0.0
        """Of all together, as of `add` and `reweigh`."""
        self._capacities: dict[int, float] = {}
        for target in targets:
            self.add(target)

    def __len__(self) -> int:
        return len(self._targets)

    def __iter__(self) -> Iterator[Target]:
        return iter(self._targets)

    def __contains__(self, index: object) -> bool:
        return index in self._places

    def __getitem__(self, index: int) -> Target:
        """The target with this index. Raises `KeyError`."""
        return self._targets[self._places[index]]

    def at(self, place: int) -> Target:
        """The target at a place in [0, len)."""
        return self._targets[place]

    def add(self, target: Target) -> None:
        """Put `target` in; nothing happens when it is there already."""
        if target.index not in self._places:
            self._places[target.index] = len(self._targets)
            self._targets.append(target)
            self._capacities[target.index] = target.capacity
            self.capacity += target.capacity

    def discard(self, target: Target) -> None:
        """Take `target` out; nothing happens when it is not there."""
        place = self._places.pop(target.index, None)
        if place is None:
            return
        self.capacity -= self._capacities.pop(target.index)
        last = self._targets.pop()
        if last is not target:
            self._targets[place] = last
            self._places[last.index] = place

    def reweigh(self, target: Target) -> None:
        """The capacity of `target` has changed; nothing happens when it is not here."""
        if target.index in self._places:
            self.capacity += target.capacity - self._capacities[target.index]
            self._capacities[target.index] = target.capacity

    def draw(self, count: int, chance: random.Random) -> list[Target]:
        """Up to `count` targets by chance, maybe fewer because none is drawn twice."""
        size = len(self._targets)
        if not size:
            return []
        places = {int(chance.random() * size) for _ in range(count)}
        return [self._targets[place] for place in places]
