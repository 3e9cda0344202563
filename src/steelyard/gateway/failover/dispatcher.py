"""Brings requests to replicas, waiting when nobody can take one, and draws the line under failures.

The waiting half of `replica_set`: that one decides at an instant, this one lets time pass.
"""

import asyncio

from steelyard.contract import Clock, TokenChunk
from steelyard.contract.clock import within
from steelyard.contract.errors import (
    Cancelled,
    EngineFailed,
    EngineLost,
    EngineStalled,
    Quarantined,
    RetryLater,
    SteelyardError,
)
from steelyard.gateway.failover.journey import Journey
from steelyard.gateway.failover.member import Attempt
from steelyard.gateway.failover.replica_set import ReplicaSet
from steelyard.gateway.failover.supervision import Supervision
from steelyard.policies.hedging import Hedging
from steelyard.policies.retry_budget import RetryBudget

__all__ = ["Dispatcher"]


class Dispatcher:
    """Shared by all requests of a failover engine."""

    def __init__(self, replicas: ReplicaSet, supervision: Supervision, clock: Clock) -> None:
        retries, hedging = replicas.config.retries, replicas.config.hedging
        now_s = clock.now()
        self.clock = clock
        self.is_closed = False
        self.hedging = None if hedging is None else Hedging(hedging, now_s)
        self.attempts: dict[str, Attempt] = {}
        """The attempt in flight of each request, by the request's own id."""
        self._replicas = replicas
        self._supervision = supervision
        self._meter = replicas.meter
        self._budget = RetryBudget(
            share=retries.budget_share,
            reserve=retries.budget_reserve,
            per_s=retries.budget_per_s,
            now_s=now_s,
        )
        self._news = asyncio.Event()
        """Set, and replaced, when a waiting request should ask again."""
        replicas.on_ready = self.tell_news

    def note_request(self) -> None:
        """A new request has come."""
        now_s = self.clock.now()
        self._budget.note_attempt(now_s)
        if self.hedging is not None:
            self.hedging.note_attempt(now_s)

    def tell_news(self) -> None:
        """Let everybody who waits for a replica ask again."""
        news, self._news = self._news, asyncio.Event()
        news.set()

    async def take_off(self, journey: Journey) -> Attempt:
        """A slot on a replica; waits for one if the request was accepted before.

        Raises what the client is told when there will be none.
        """
        while True:
            if self.is_closed:
                raise EngineLost("the service is closing")
            if journey.is_aborted:
                raise Cancelled("the request was aborted")
            now_s = self.clock.now()
            journey.remaining_s(now_s)
            try:
                return self._replicas.dispatch(journey, now_s)
            except RetryLater as refusal:
                wait_s = journey.begin_round(refusal, now_s)
            news = self._news
            try:
                await within(self.clock, wait_s, news.wait())
            except TimeoutError:
                continue

    def take_off_again(self, journey: Journey) -> Attempt | None:
        """A second slot, elsewhere, for a hedge; None when nobody can take it now."""
        try:
            return self._replicas.dispatch(journey, self.clock.now())
        except (RetryLater, EngineFailed):
            return None

    def note_first_chunk(self, attempt: Attempt, chunk: TokenChunk) -> None:
        """The attempt has brought its first chunk."""
        now_s = self.clock.now()
        journey, load = attempt.journey, attempt.load
        computed_tokens = None
        if chunk.usage is not None and chunk.start == 0:
            computed_tokens = len(journey.request.prompt_ids) - chunk.usage.cached_tokens
        attempt.member.target.first_token(load, now_s, computed_tokens=computed_tokens)
        self._replicas.note_proven(attempt)
        if journey.failed_s is not None:
            self._meter.moved(journey.stage, journey.failed_by, now_s - journey.failed_s)
        if self.hedging is not None and not journey.is_hedged:
            self.hedging.note_first_token(now_s - load.began_s)
        journey.note_token()

    def note_hedge(self, *, has_won: bool) -> None:
        """A race between two replicas was decided; `has_won`: by the one that came second."""
        self._meter.hedged("won" if has_won else "lost")

    def finish(self, attempt: Attempt) -> None:
        """The attempt has brought its last chunk."""
        attempt.has_finished = True
        attempt.close(self.clock.now())
        if attempt.journey.was_in_death:
            self._replicas.quarantine.on_success(attempt.journey.fingerprint)

    def close(self, attempt: Attempt) -> None:
        """The attempt is over, and nobody is to blame."""
        attempt.close(self.clock.now())

    def fail(self, attempt: Attempt, error: SteelyardError) -> None:
        """The attempt has failed: blame, release, and raise when there must not be another one."""
        now_s = self.clock.now()
        attempt.is_waiting = False  # it must not be interrupted while its replica is judged
        journey = attempt.journey
        self._supervision.note_failure(attempt, error, now_s)
        attempt.close(now_s)
        index = attempt.member.target.index
        if isinstance(error, RetryLater):
            journey.tried.add(index)
        else:
            journey.failed.add(index)
        try:
            journey.note_failure(error, now_s, silent_s=attempt.silent_s)
            if not journey.emitted and _is_its_own_fault(attempt, error):
                self._spend_retry(error, now_s)
        except Quarantined:
            self._meter.quarantined()
            raise

    def _spend_retry(self, error: SteelyardError, now_s: float) -> None:
        if not self._budget.try_spend(now_s):
            self._meter.budget_refused()
            raise error

    def note_given_up(self, journey: Journey, error: SteelyardError) -> None:
        """The request ends with an error."""
        if journey.failed_s is not None:
            self._meter.given_up(journey.stage, error.code)


def _is_its_own_fault(attempt: Attempt, error: SteelyardError) -> bool:
    """Whether a retry adds load to a service that is all there, as far as is known."""
    return isinstance(error, EngineFailed) or (
        isinstance(error, EngineStalled) and not attempt.is_move
    )
