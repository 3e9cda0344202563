"""Judges replicas by what is seen of them: streams that fall silent, failures, answers to probes.

Decides only; `watch` looks at the clock, asks the probes and calls here.
"""

from collections.abc import Iterator

from steelyard.contract import EngineStatus
from steelyard.contract.errors import (
    EngineDraining,
    EngineFailed,
    EngineLost,
    EngineStalled,
    EngineStarting,
    Overloaded,
    SteelyardError,
)
from steelyard.gateway.failover.member import Attempt, Member
from steelyard.gateway.failover.replica_set import ReplicaSet
from steelyard.policies.health import Health

__all__ = ["Supervision"]

_SHARES_EVERY_S = 0.25
"""A returning replica's share grows over seconds; in a large fleet many return at once."""


class Supervision:
    """News of the members of one set."""

    def __init__(self, replicas: ReplicaSet) -> None:
        self._replicas = replicas
        self._shares_due_s = float("-inf")

    # Streams.

    def sweep(self, now_s: float, elapsed_s: float) -> None:
        """Look at all attempts in flight; `elapsed_s` since the last time.

        Silence is added up from sweep to sweep and not read from a clock, so that the caller can
        leave out a time in which we were held up ourselves.
        """
        for member in tuple(self._replicas.busy):
            self._sweep_member(member, now_s, elapsed_s)
        if now_s >= self._shares_due_s:
            self._shares_due_s = now_s + _SHARES_EVERY_S
            for member in self._replicas.ready:
                if member.health.state is Health.RETURNING:
                    self._replicas.set_share(member, member.health.share(now_s))

    def _sweep_member(self, member: Member, now_s: float, elapsed_s: float) -> None:
        has_moved = False
        streams = 0
        # One round per request in flight, 20 times a second.
        for attempt in member.attempts:
            if attempt.chunks != attempt.seen_chunks:
                has_moved = True
                _note_gaps(attempt, elapsed_s)
            elif attempt.is_waiting:
                attempt.silent_s += elapsed_s
                streams += attempt.chunks > 0
            else:
                attempt.silent_s = 0.0  # its client is slow, not its engine
        if has_moved:
            member.silent_s = 0.0
            member.health.on_tokens(now_s)
            self._replicas.note_state(member)
        else:
            member.silent_s = member.silent_s + elapsed_s if streams else 0.0
        self._judge(member, now_s, has_moved=has_moved)

    def _judge(self, member: Member, now_s: float, *, has_moved: bool) -> None:
        if member.silent_s >= member.stalls.limit_s:
            self._stall(member, now_s)
            return
        lone_limit_s = member.stalls.lone_limit_s if has_moved else float("inf")
        is_out = member.health.state is Health.EJECTED and member.health.reason != "errors"
        for attempt in tuple(member.attempts):
            silent_s, load = attempt.silent_s, attempt.load
            if attempt.chunks:
                if silent_s >= lone_limit_s:
                    attempt.give_up(_stalled(member, silent_s), is_move=False)
            elif member.stalls.is_overdue(silent_s, load.predicted_s):
                member.health.on_doubt(now_s)
                if is_out:  # it had been tried nevertheless, for want of a better one
                    attempt.give_up(_stalled(member, silent_s), is_move=True)

    def _stall(self, member: Member, now_s: float) -> None:
        """All streams go on elsewhere; what waits for its first token waits for a probe's word."""
        member.lost_riders = member.riders
        member.health.on_stall(now_s)
        for attempt in tuple(member.attempts):
            if attempt.chunks:
                attempt.give_up(_stalled(member, attempt.silent_s), is_move=True)
        member.silent_s = 0.0
        self._note_verdict(member, now_s)

    # Failures.

    def note_failure(self, attempt: Attempt, error: SteelyardError, now_s: float) -> None:
        """A request's attempt ended with an error; it is still in flight as far as slots go."""
        member = attempt.member
        match error:
            case EngineStarting():
                self._replicas.note_absence(member, error, now_s)
            case EngineDraining():
                member.health.on_draining(now_s)
            case EngineLost():
                self._note_lost(attempt, now_s)
            case EngineFailed():
                member.health.on_error(now_s)
            case EngineStalled() if attempt.verdict is None:
                member.health.on_error(now_s)  # the engine's own word, or its adapter's
            case Overloaded():
                pass  # busy, not broken
            case _:
                return
        self._note_verdict(member, now_s)

    def _note_lost(self, attempt: Attempt, now_s: float) -> None:
        """One connection broke. Whether the whole replica is gone, its engine object may know."""
        member = attempt.member
        try:
            _ = member.engine.info
        except SteelyardError as absence:
            self._replicas.note_absence(member, absence, now_s)
        else:
            member.lost_riders.append(attempt.ride)
            member.health.on_lost(now_s)

    # Probes.

    def due(self, now_s: float, limit: int) -> Iterator[Member]:
        """Up to `limit` members that should be asked for their status now."""
        for member in tuple(self._replicas):
            if limit and member.health.is_probe_due(now_s):
                limit -= 1
                yield member

    def note_answer(self, member: Member, status: EngineStatus, now_s: float) -> None:
        """A probe was answered."""
        if status.state in ("starting", "lost"):
            error = EngineStarting("the engine is starting", delay_s=1.0)
            self._replicas.note_absence(member, error, now_s)
            return
        try:
            info = member.engine.info
        except SteelyardError as error:
            self._replicas.note_absence(member, error, now_s)
            return
        self._replicas.note_info(member, info)
        member.status = status
        member.absence = None
        member.target.observe(status)
        member.health.on_answer(now_s, status)
        if member.health.state in (Health.HEALTHY, Health.RETURNING):
            member.lost_riders = []
        self._note_verdict(member, now_s)

    def note_miss(self, member: Member, now_s: float) -> None:
        """A probe was not answered in time."""
        member.health.on_miss(now_s)
        self._note_verdict(member, now_s)

    def _note_verdict(self, member: Member, now_s: float) -> None:
        """Health may have changed: one that has just been ejected is given up."""
        health = member.health
        is_out = health.state is Health.EJECTED and health.reason != "errors"
        if is_out and member.known_state not in ("ejected", "absent"):
            error = EngineStalled(f"the replica {member.name} is {health.reason}")
            self._replicas.note_death(member, error, now_s)
        self._replicas.note_state(member)


def _note_gaps(attempt: Attempt, elapsed_s: float) -> None:
    """Take in what the chunks since the last sweep say about silences."""
    chunks = attempt.chunks - attempt.seen_chunks
    if attempt.seen_chunks:
        stalls = attempt.member.stalls
        stalls.add(attempt.silent_s + elapsed_s)
        if chunks > 1:
            stalls.add(elapsed_s / chunks, chunks - 1)
    attempt.seen_chunks = attempt.chunks
    attempt.silent_s = 0.0


def _stalled(member: Member, silent_s: float) -> EngineStalled:
    return EngineStalled(f"no token came from {member.name} for {silent_s:.1f} s")
