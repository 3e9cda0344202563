"""The replicas of one model: who there is, and who gets the next request.

Decides and keeps the books without waiting for anything: time comes in, and engines are only asked
for their `info`. How each replica does is judged in `supervision`; `engine` carries requests to the
members chosen here.
"""

import contextlib
import itertools
import logging
from collections.abc import Callable, Iterator

from steelyard.contract import Engine, EngineInfo
from steelyard.contract.errors import (
    EngineDraining,
    EngineFailed,
    EngineLost,
    EngineStarting,
    Overloaded,
    RetryLater,
    SteelyardError,
)
from steelyard.gateway.failover.journey import Journey
from steelyard.gateway.failover.member import Attempt, Member
from steelyard.policies.config import PoliciesConfig
from steelyard.policies.health import Health, ReplicaHealth
from steelyard.policies.quarantine import Quarantine, Rider, Stance
from steelyard.policies.rotation import Rotation
from steelyard.policies.routing import Target, Trip, make_routing
from steelyard.policies.shedding import Shedding
from steelyard.policies.stalls import StallLimit
from steelyard.policies.ttft_model import TtftModel
from steelyard.telemetry.failover_meter import FailoverMeter

__all__ = ["ReplicaSet"]

_log = logging.getLogger(__name__)

_LAST_RESORTS = 3
_APART_DELAY_S = 0.05
_ABSENT_DELAY_S = 2.0
_FIRST_OUTPUT_TOKENS = 128.0
_OUTPUT_MEMORY = 0.98


class ReplicaSet:
    """Members by name. Used from one event loop."""

    def __init__(self, config: PoliciesConfig, *, meter: FailoverMeter, seed: int) -> None:
        self.config = config
        self.meter = meter
        self.quarantine = Quarantine(config.quarantine)
        self.rotation = Rotation(max_ejected_share=config.health.max_ejected_share)
        self.version = 0
        """Changes whenever a member's `info` does."""
        self.on_ready: Callable[[], None] = _nothing
        """Called when a member has become ready, or one that was kept apart is proven."""
        self.on_state: Callable[[str, str], None] = _ignore
        """Told a member's name and its health when that has changed."""
        self._members: dict[str, Member] = {}
        self._by_index: dict[int, Member] = {}
        self._routing = make_routing(config.routing, seed=seed)
        self._shedding = Shedding(config.shedding)
        self._model = TtftModel()
        """Of all replicas together: what is expected of one that is not known yet."""
        self._output_tokens = _FIRST_OUTPUT_TOKENS
        """Recent mean length of an answer."""
        self._apart = 0
        """Attempts in flight that nobody unproven may join."""
        self.busy: dict[Member, None] = {}
        """Members with attempts in flight."""

    # Who there is.

    def __iter__(self) -> Iterator[Member]:
        return iter(self._members.values())

    def __len__(self) -> int:
        return len(self._members)

    def __contains__(self, name: object) -> bool:
        return name in self._members

    def __getitem__(self, name: str) -> Member:
        """The member called `name`. Raises `KeyError`."""
        return self._members[name]

    def add(
        self,
        name: str,
        engine: Engine,
        now_s: float,
        *,
        group: str = "",
        weight: float = 1.0,
        penalty_s: float = 0.0,
    ) -> Member:
        """Take a replica in; it gets requests once it has answered a probe.

        `weight`: capacity relative to others, 0 for none. `penalty_s`: how much later than near
        ones a far one answers.
        """
        assert name not in self._members, f"{name} is in the set already"
        index = next(i for i in range(len(self._by_index) + 1) if i not in self._by_index)
        member = Member(
            name,
            engine,
            target=Target(
                index, weight=weight, penalty_s=penalty_s, model=TtftModel(parent=self._model)
            ),
            health=ReplicaHealth(self.config.health, now_s),
            stalls=StallLimit(self.config.stalls),
            group=group,
        )
        self._members[name] = self._by_index[index] = member
        self.note_state(member)
        return member

    def remove(self, name: str) -> Member:
        """Forget a replica. Whoever is in flight there goes on elsewhere."""
        member = self._members.pop(name)
        member.is_wanted = False
        del self._by_index[member.target.index]
        self.rotation.remove(member.target)
        self._routing.note_removed(member.target)
        self.meter.forget_replica(name)
        self.version += 1
        member.give_up(EngineDraining(f"the replica {name} was taken out"), is_move=True)
        return member

    @property
    def ready(self) -> list[Member]:
        """Those that are given requests first."""
        return [self._by_index[target.index] for target in self.rotation.ready]

    def find_somebody(self) -> bool:
        """Whether anybody can be asked now; also looks for who was absent and has come back."""
        if self.rotation.ready or self.rotation.doubtful:
            return True
        for member in self:
            if member.is_wanted and not member.health.is_draining:
                with contextlib.suppress(SteelyardError):
                    self.note_info(member, member.engine.info)
                    return True
        return False

    def set_share(self, member: Member, share: float) -> None:
        """Give a member that is returning, or was until now, this part of its full share."""
        member.target.share = share
        self.rotation.ready.reweigh(member.target)
        if member.health.state is not Health.RETURNING:
            self.note_state(member)

    def want(self, name: str, is_wanted: bool) -> None:
        """Give a replica new requests, or none. Running ones stay."""
        member = self._members[name]
        member.is_wanted = is_wanted
        self.note_state(member)

    # Who gets a request.

    def dispatch(self, journey: Journey, now_s: float) -> Attempt:
        """Take a slot for the request on the best member that it has not tried.

        Leaving the attempt's context gives the slot back. Raises the `RetryLater` that says when
        asking again may help, or `EngineFailed` when nobody can continue the stream.
        """
        if len(journey.tried) >= self.config.retries.max_refusals:
            raise journey.take_refusal()
        trip = journey.trip(self._output_tokens)
        member = self._choose(trip, journey, now_s)
        target = member.target
        self._routing.note_sent(trip, target, now_s)
        load = target.begin(now_s, new_tokens=trip.new_tokens(target), held_tokens=trip.held_tokens)
        attempt = Attempt(journey, member, load, self.release)
        member.attempts[attempt] = None
        self.busy[member] = None
        self.meter.replica_in_flight(member.name, len(member.attempts))
        if attempt.stance is not Stance.CLEAR:
            member.unproven.add(attempt)
            self._apart += attempt.stance is Stance.APART
        return attempt

    def release(self, attempt: Attempt, now_s: float) -> None:
        """The attempt is over: its slot is free. Valid once."""
        member = attempt.member
        del member.attempts[attempt]
        if self._members.get(member.name) is member:  # else its gauge is gone with it
            self.meter.replica_in_flight(member.name, len(member.attempts))
        if not member.attempts:
            del self.busy[member]
            member.silent_s = 0.0
        self.note_proven(attempt)
        member.target.end(attempt.load, now_s, has_finished=attempt.has_finished)
        if attempt.has_finished:
            member.health.on_success()
            length = len(attempt.journey.emitted)
            self._output_tokens += (1 - _OUTPUT_MEMORY) * (length - self._output_tokens)

    def note_proven(self, attempt: Attempt) -> None:
        """The attempt has brought a token, or is over: nobody need be kept from it any more."""
        unproven = attempt.member.unproven
        if attempt in unproven:
            unproven.remove(attempt)
            self._apart -= attempt.stance is Stance.APART
            self.on_ready()

    def _choose(self, trip: Trip, journey: Journey, now_s: float) -> Member:
        """Best a replica that has not failed on this request; if there is none, one that has."""
        kept = journey.tried | self._kept_from(journey)
        for excluded in (kept | journey.failed, kept) if journey.failed else (kept,):
            trip.excluded = set(excluded)
            member = self._choose_among(trip, journey, now_s)
            if member is not None:
                return member
        return self._last_resort(trip, journey, now_s)

    def _choose_among(self, trip: Trip, journey: Journey, now_s: float) -> Member | None:
        for pool in self.rotation.tiers:
            while (target := self._routing.pick(trip, pool, now_s)) is not None:
                member = self._by_index[target.index]
                if not self._is_able(member, journey, now_s):
                    trip.excluded.add(target.index)
                    continue
                refusal = self._overload(target, trip, journey, now_s)
                if refusal is None:
                    return member
                journey.note_refusal(refusal)
                break  # the others of this pool are no better
        return None

    def _is_able(self, member: Member, journey: Journey, now_s: float) -> bool:
        """Whether somebody is there, and fit for this request."""
        try:
            info = member.engine.info
        except SteelyardError as error:
            self.note_absence(member, error, now_s)
            return False
        self.note_info(member, info)
        if journey.emitted and not info.can_continue:
            journey.cannot_continue = True
            return False
        return True

    def _overload(
        self, target: Target, trip: Trip, journey: Journey, now_s: float
    ) -> Overloaded | None:
        """Why the request is not taken on although somebody could; None when it is."""
        if journey.is_accepted:
            return None
        try:
            wait_s = target.predict_wait_s(trip.held_tokens, now_s)
            self._shedding.check(journey.request.priority, wait_s)
        except Overloaded as refusal:
            journey.is_shed = True
            return refusal
        return None

    def _last_resort(self, trip: Trip, journey: Journey, now_s: float) -> Member:
        """One that seems to be absent, but is there after all. Raises when there is none."""
        able = (m for m in self if m.health.is_absent and m.target.index not in trip.excluded)
        for member in itertools.islice(able, _LAST_RESORTS):
            if member.is_wanted and self._is_able(member, journey, now_s):
                return member
        if journey.cannot_continue:
            raise EngineFailed("the stream broke, and no endpoint left can continue one")
        if journey.stance is Stance.APART and journey.refusal is None:
            journey.note_refusal(EngineStarting("it must run alone", delay_s=_APART_DELAY_S))
        if journey.is_shed:
            self.meter.shed(journey.request.priority)
        if journey.refusal is None:
            journey.note_refusal(self.why_nobody())
        raise journey.take_refusal()

    def why_nobody(self) -> RetryLater:
        """What to tell requests while no member can take any."""
        absences = [m.absence for m in self if isinstance(m.absence, RetryLater)]
        if absences:
            return min(absences, key=lambda absence: absence.delay_s)
        return EngineStarting("no engine can take requests now", delay_s=_ABSENT_DELAY_S)

    def _kept_from(self, journey: Journey) -> set[int]:
        """Members that somebody with this past must not be given to, by index."""
        if journey.stance is Stance.APART:
            return {member.target.index for member in self if member.unproven}
        if journey.stance is Stance.PROBATION and self._apart:
            hosts = {m.target.index for m in self if m.hosts_apart}
            return hosts if len(hosts) < len(self.rotation.ready) else set()
        return set()

    # What becomes of members.

    def note_state(self, member: Member) -> None:
        """Sort a member in by its health, after anything has happened to it."""
        health = member.health
        if self._members.get(member.name) is not member:
            return  # it was taken out
        if health.state is not Health.RETURNING:
            member.target.share = 1.0
        has_become_ready = self.rotation.update(member.target, health, is_wanted=member.is_wanted)
        if has_become_ready:
            self._routing.note_joined(member.target, self.rotation.ready)
            self.on_ready()
        state = "absent" if health.is_absent else health.state.value
        if state == member.known_state:
            return
        _log.info("replica %s is %s (%s)", member.name, state, health.reason or "no doubts")
        self.meter.replica_is(member.name, state)
        if health.state is Health.EJECTED and member.known_state not in ("", "absent", "ejected"):
            self.meter.ejected(member.name, health.reason)
        is_first, member.known_state = not member.known_state, state
        if not is_first:
            self.on_state(member.name, state)

    def note_absence(self, member: Member, error: SteelyardError, now_s: float) -> None:
        """Nobody is there. If somebody was, he has died, and with him all he had in flight."""
        was_there = not member.health.is_absent
        member.absence = error
        member.health.on_absence(now_s, error.code)
        if was_there:  # what those in flight hear is no advice to come back later: they move now
            self.note_death(member, EngineLost(f"the replica {member.name} is gone"), now_s)
        self.note_state(member)

    def note_death(self, member: Member, error: SteelyardError, now_s: float) -> None:
        """A member was lost, or is given up: strikes for its riders, who go on elsewhere."""
        riders = [*member.lost_riders, *member.riders]
        member.lost_riders = []
        stances = self.quarantine.on_death(
            [Rider(ride.journey.fingerprint, ride.began_s, ride.has_tokens) for ride in riders],
            now_s,
        )
        for ride in riders:
            ride.journey.stance = stances[ride.journey.fingerprint]
            ride.journey.was_in_death = True
        member.give_up(error, is_move=True)

    def note_info(self, member: Member, info: EngineInfo) -> None:
        """What the process says that answers now; a new one has nothing in its cache."""
        if member.info is not None and member.info.epoch == info.epoch:
            return
        if member.info is not None:
            self._routing.note_restarted(member.target)
        member.info = info
        member.target.describe(info)
        self.version += 1

    def check_integrity(self) -> None:
        """Assert that slots are those of the attempts in flight."""
        for member in self:
            member.target.check_integrity()
            assert member.target.in_flight == len(member.attempts), member.name
            assert member.unproven <= member.attempts.keys(), member.name
        apart = sum(a.stance is Stance.APART for m in self for a in m.unproven)
        assert self._apart == apart, "somebody is kept apart for ever"


def _nothing() -> None:
    pass


def _ignore(_name: str, _state: str) -> None:
    pass
