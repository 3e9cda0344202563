"""The replicas of one deployment as a whole: started together, looked after one by one.

Each has a post (its name and place in the deployment) and a keeper of its process
(`fleet.replica`). A crew tells whoever routes requests (`Roster`) who there is and who is wanted;
which replica gets a request is decided there. What operators ask for is in `fleet.orders`.
"""

import asyncio
import hashlib
import logging
import re
from collections.abc import Awaitable, Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from steelyard.contract import Engine
from steelyard.contract.errors import NotFound, SteelyardError
from steelyard.fleet.replica import Replica, ReplicaStatus

__all__ = ["Crew", "Hand", "Hire", "Post", "Roster"]

_log = logging.getLogger(__name__)


class Roster(Protocol):
    """What a crew needs of whoever routes requests (`gateway.failover.FailoverEngine`)."""

    def add(self, name: str, engine: Engine, *, group: str, weight: float) -> None:
        """A replica has joined; it gets requests once it answers."""
        ...

    def want(self, name: str, is_wanted: bool) -> None:
        """Give it new requests, or none."""
        ...

    async def empty(self, name: str, *, grace_s: float) -> None:
        """No new requests, and whoever is not done after `grace_s` goes on elsewhere."""
        ...

    async def retire(self, name: str, *, grace_s: float) -> None:
        """As `empty`, and forget the replica."""
        ...


@dataclass(frozen=True, slots=True)
class Post:
    """One place in a deployment."""

    name: str
    """`group/number`; stable over restarts."""
    group: str
    weight: float = 1.0
    standby_of: str | None = None
    """The group it stands by for; None: it serves."""

    @property
    def file_name(self) -> str:
        """What sockets and logs are called: short, as sockets' paths must be, and no other post's.

        Groups are named freely: `a.b` and `a-b` would be one file if signs were only replaced.
        """
        if re.fullmatch("[A-Za-z0-9]{1,32}/[0-9]+", self.name):
            return self.name.replace("/", "-")
        plain = re.sub("[^A-Za-z0-9]", "-", self.name)[:32]
        return f"{plain}-{hashlib.sha256(self.name.encode()).hexdigest()[:8]}"


@dataclass(frozen=True, slots=True)
class Hand:
    """Who fills a post: a keeper of a process, and the engine object connected to it."""

    post: Post
    engine: Engine
    replica: Replica


Hire = Callable[[Post], Hand]
"""Makes the keeper for a post; starts nothing."""


class Crew:
    """Keeps all replicas up. `Keeper` of `cli.wiring`, for many processes at once."""

    def __init__(self, posts: Sequence[Post], *, roster: Roster, hire: Hire) -> None:
        self._hire = hire
        self.roster = roster
        self._hands: dict[str, Hand] = {}
        for post in posts:
            self.add(post)

    def __iter__(self) -> Iterator[Hand]:
        return iter(tuple(self._hands.values()))

    def __contains__(self, name: object) -> bool:
        return name in self._hands

    def __getitem__(self, name: str) -> Hand:
        """Raises `NotFound` that says who there is."""
        if (hand := self._hands.get(name)) is None:
            known = ", ".join(self._hands)
            raise NotFound(f"there is no replica {name[:100]!a}", fix=f"Use one of {known}.")
        return hand

    @property
    def statuses(self) -> dict[str, ReplicaStatus]:
        """Changes nothing."""
        return {name: hand.replica.status for name, hand in self._hands.items()}

    @property
    def pids(self) -> dict[str, int]:
        """Processes that are there now, by the replica's name."""
        return {
            name: status.pid for name, status in self.statuses.items() if status.pid is not None
        }

    def add(self, post: Post) -> Hand:
        """Fill a post. Its process is started by `startup` of its replica, or of the crew."""
        assert post.name not in self._hands, f"{post.name} is filled"
        hand = self._hands[post.name] = self._hire(post)
        self.roster.add(post.name, hand.engine, group=post.group, weight=post.weight)
        if post.standby_of is not None:
            self.roster.want(post.name, False)
        return hand

    async def dismiss(self, name: str, *, grace_s: float) -> None:
        """Take a replica out; its streams go on elsewhere, then its process ends."""
        hand = self[name]
        await self.roster.retire(name, grace_s=grace_s)
        await hand.replica.shutdown()
        del self._hands[name]

    # All of them.

    def startup(self) -> None:
        """Want all up; returns at once."""
        for hand in self:
            hand.replica.startup()

    async def wait_ready(self) -> None:
        """Return once everybody who serves is ready, apart from those that cannot become so.

        Raises what is wrong when that is true of all.
        """
        serving = [hand.replica for hand in self if hand.post.standby_of is None]
        ends = await asyncio.gather(*(_end(replica.wait_ready()) for replica in serving))
        errors = [error for error in ends if error is not None]
        if errors and len(errors) == len(serving):
            raise errors[0]
        for error in errors:
            _log.error("a replica cannot be started: %s", error)

    async def wait_broken(self) -> SteelyardError:
        """Return, with the reason, once none can ever be ready again; maybe never."""
        reasons = await asyncio.gather(*(hand.replica.wait_broken() for hand in self))
        return reasons[0]

    async def shutdown(self) -> None:
        """Stop all at once, each in order; return when they are gone."""
        await asyncio.gather(*(hand.replica.shutdown() for hand in self))

    async def leave(self) -> None:
        """Stop keeping them, and leave their processes to whoever comes next."""
        await asyncio.gather(*(hand.replica.leave() for hand in self))

    def kill(self) -> None:
        """End all processes now."""
        for hand in self:
            hand.replica.kill()


async def _end(work: Awaitable[Any]) -> SteelyardError | None:
    try:
        await work
    except SteelyardError as error:
        return error
    return None
