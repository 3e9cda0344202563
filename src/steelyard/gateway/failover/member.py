"""One replica of a set, and the attempts that are in flight on it.

Plain state: what happens to it is decided in `replica_set`, what is sent to it in `engine`.
"""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass

from steelyard.contract import Engine, EngineInfo, EngineStatus
from steelyard.contract.errors import SteelyardError
from steelyard.gateway.failover.journey import Journey
from steelyard.policies.health import ReplicaHealth
from steelyard.policies.quarantine import Stance
from steelyard.policies.routing import Load, Target
from steelyard.policies.stalls import StallLimit

__all__ = ["Attempt", "Member", "Ride"]


@dataclass(frozen=True, slots=True)
class Ride:
    """An attempt as it was at some time."""

    journey: Journey
    began_s: float
    has_tokens: bool


class Member:
    """A replica. `name` is stable over restarts: `group/index`."""

    __slots__ = (
        "absence",
        "attempts",
        "engine",
        "group",
        "health",
        "info",
        "is_wanted",
        "known_state",
        "lost_riders",
        "name",
        "silent_s",
        "stalls",
        "status",
        "target",
        "unproven",
    )

    def __init__(
        self,
        name: str,
        engine: Engine,
        *,
        target: Target,
        health: ReplicaHealth,
        stalls: StallLimit,
        group: str,
    ) -> None:
        self.name = name
        self.group = group
        self.engine = engine
        self.target = target
        self.health = health
        self.stalls = stalls
        self.is_wanted = True
        """False: no new requests."""
        self.info: EngineInfo | None = None
        """Of the process that answered last; None while none ever has."""
        self.status: EngineStatus | None = None
        """Its newest answer to a probe."""
        self.absence: SteelyardError | None = None
        """Why nobody is there, as it was last said."""
        self.attempts: dict[Attempt, None] = {}
        """In the order in which they began, so that what is done to them all is repeatable."""
        self.unproven: set[Attempt] = set()
        """Of these, requests that survived a death elsewhere and have not brought a token yet."""
        self.silent_s = 0.0
        """How long no stream has advanced while at least one was waited for."""
        self.lost_riders: list[Ride] = []
        """Who was in flight when it stalled or broke connections, until it is known whether it had
        died."""
        self.known_state = ""
        """Health as it was last reported."""

    @property
    def hosts_apart(self) -> bool:
        """Whether nobody unproven may join those in flight here."""
        return any(attempt.stance is Stance.APART for attempt in self.unproven)

    @property
    def riders(self) -> list["Ride"]:
        """Who is in flight here."""
        return [attempt.ride for attempt in self.attempts]

    def give_up(self, verdict: SteelyardError, *, is_move: bool) -> None:
        """Give up all attempts that wait for this replica; they go on elsewhere."""
        for attempt in self.attempts:
            attempt.give_up(verdict, is_move=is_move)


class Attempt:
    """One request on one replica. A context that gives its slot back exactly once."""

    __slots__ = (
        "_cancelling",
        "_release",
        "_task",
        "chunks",
        "has_finished",
        "is_move",
        "is_waiting",
        "journey",
        "load",
        "member",
        "seen_chunks",
        "silent_s",
        "stance",
        "verdict",
    )

    def __init__(
        self,
        journey: Journey,
        member: Member,
        load: Load,
        release: "Callable[[Attempt, float], None]",
    ) -> None:
        self.journey = journey
        self.member = member
        self.load = load
        self.stance = journey.stance
        """As it was when the attempt began."""
        self.chunks = 0
        """Received. The hot path counts, the sweep compares."""
        self.seen_chunks = 0
        self.silent_s = 0.0
        """How long it has been waited for in vain, as of the last sweep."""
        self.is_waiting = False
        """The generator waits for the engine, and for nobody else."""
        self.has_finished = False
        self.verdict: SteelyardError | None = None
        """Why it was given up; None while it is not."""
        self.is_move = False
        """It was given up because of its replica, not because of itself."""
        self._release = release
        self._task: asyncio.Task[object] | None = None
        self._cancelling = 0

    @property
    def ride(self) -> "Ride":
        """For the inquest, should the replica die."""
        return Ride(self.journey, self.load.began_s, self.load.first_token_s is not None)

    def wait(self) -> None:
        """The generator begins, or goes on, to wait for the engine in the present task."""
        self._task = asyncio.current_task()
        self.is_waiting = True

    def give_up(self, verdict: SteelyardError, *, is_move: bool) -> None:
        """Interrupt the wait with `verdict`, if there is one; only the first time counts."""
        if self.verdict is not None or not self.is_waiting or self._task is None:
            return
        self.verdict = verdict
        self.is_move = is_move
        self._cancelling = self._task.cancelling()
        self._task.cancel()

    def take_verdict(self) -> SteelyardError | None:
        """Why the wait was interrupted; None when it was not, or not by us alone.

        As `asyncio.timeout` does it: our own cancellation is taken back. Valid once.
        """
        if self.verdict is None or self._task is None:
            return None
        return self.verdict if self._task.uncancel() <= self._cancelling else None

    def close(self, now_s: float) -> None:
        """Give the slot back. Valid once."""
        self.is_waiting = False
        self._release(self, now_s)
