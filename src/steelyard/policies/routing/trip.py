"""One request on its way to a replica, and what every routing policy can do with it."""

from dataclasses import dataclass, field
from typing import Protocol

from steelyard.policies.routing.pool import Pool
from steelyard.policies.routing.target import Target

__all__ = ["RoutingPolicy", "Trip"]


@dataclass(slots=True)
class Trip:
    """What routing knows of a request. A policy may keep what it computed in it."""

    token_ids: tuple[int, ...]
    """Everything the engine has to compute or find: prompt, and tokens emitted before."""
    output_tokens: float
    """How many more are expected."""
    salt: str = ""
    session: str = ""
    """Requests of one conversation; empty when there is none."""
    excluded: set[int] = field(default_factory=set)
    """Indices of targets that shall not be chosen (again)."""
    keys: list[int] | None = None
    """Prefix keys of `token_ids`; None until a policy needs them."""
    overlaps: dict[int, int] = field(default_factory=dict)
    """Tokens of the prompt that targets are thought to have, by index."""

    @property
    def held_tokens(self) -> float:
        """KV memory it may come to need."""
        return len(self.token_ids) + self.output_tokens

    def new_tokens(self, target: Target) -> int:
        """Tokens that `target` would have to compute: at least the last one."""
        tokens = len(self.token_ids)
        return max(tokens - self.overlaps.get(target.index, 0), 1)


class RoutingPolicy(Protocol):
    """Chooses among the targets of a pool."""

    def pick(self, trip: Trip, pool: Pool, now_s: float) -> Target | None:
        """A target of `pool` that is not excluded; None when there is none. Sends nothing."""
        ...

    def note_sent(self, trip: Trip, target: Target, now_s: float) -> None:
        """The request was given to `target`, whoever chose it."""
        ...

    def note_joined(self, target: Target, pool: Pool) -> None:
        """A target, just put into `pool`, is new or comes back; its description is known."""
        ...

    def note_restarted(self, target: Target) -> None:
        """What `target` had cached is gone."""
        ...

    def note_removed(self, target: Target) -> None:
        """`target` is gone for good."""
        ...
