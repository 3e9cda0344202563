"""Which tokens are computed in the next step, and what a computed step means for clients.

The engine's loop is two calls around its runner:

    plan = scheduler.plan(now_s)                 decodes, running prefills, then admissions
    outcome = scheduler.apply(plan, result, now_s)

Plans are applied in order, one at a time; `submit` and `abort` may come at any time between calls.
A plan that was not applied loses nothing: the next one asks for the same tokens.
Not here: computing (`engine`), memory (`kv_manager`), text and stop strings (the gateway).
"""

from collections import abc
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from steelyard.contract import FinishReason, GenerateRequest, TokenChunk
from steelyard.contract.errors import (
    ContextTooLong,
    DeadlineExceeded,
    InvalidRequest,
    Overloaded,
    SteelyardError,
)
from steelyard.scheduling.admission import Admission
from steelyard.scheduling.config import GroupKind, KVGroup, SchedulerConfig
from steelyard.scheduling.deadlines import Deadlines
from steelyard.scheduling.kv_manager import KVManager
from steelyard.scheduling.roster import Roster
from steelyard.scheduling.sequence import Sequence
from steelyard.scheduling.status_counters import StatusCounters
from steelyard.scheduling.step_cost import StepCost
from steelyard.scheduling.step_plan import StepOutcome, StepPlan, StepResult
from steelyard.scheduling.step_planner import StepPlanner

__all__ = ["Scheduler"]

_MAX_TOKEN_ID = 2**31 - 1
_SHORTEST_DELAY_S = 1.0
_LONGEST_DELAY_S = 60.0
_STEP_TIME_MEMORY = 0.9


class Scheduler:
    """The queue, the running sequences and their KV memory of one engine. Used by one thread."""

    def __init__(
        self,
        config: SchedulerConfig,
        groups: abc.Sequence[KVGroup],
        end_token_ids: abc.Iterable[int],
    ) -> None:
        self._config = config
        self._end_token_ids = frozenset(end_token_ids)
        self._kv = KVManager(
            groups,
            max_running=min(config.max_running, config.max_step_tokens),
            context_tokens=config.context_tokens,
            max_step_tokens=config.max_step_tokens,
            prefix_cache=config.prefix_cache,
        )
        self._roster = Roster(self._kv)
        self._deadlines = Deadlines()
        self._arrivals = 0
        self._undelivered = StepOutcome([], [])
        self._counters = StatusCounters()
        self._admission = Admission(config)
        self.cost = StepCost(attend_limit=_attend_limit(groups))
        """What steps cost, as learned from those applied."""
        self._planner = StepPlanner(
            config,
            roster=self._roster,
            kv=self._kv,
            admission=self._admission,
            cost=self.cost,
            counters=self._counters,
        )

    # What is going on.

    @property
    def running(self) -> abc.Sequence[Sequence]:
        """Sequences that hold KV memory, by (priority, arrival). Not to be changed."""
        return self._roster.running

    @property
    def waiting(self) -> abc.Sequence[Sequence]:
        """Sequences that hold none, in the order in which they may start. A copy."""
        return list(self._roster.waiting)

    @property
    def has_work(self) -> bool:
        """Whether `plan` and `apply` would do anything, if only report what has ended."""
        ended = self._undelivered
        return bool(self._roster.live or ended.chunks or ended.failures)

    @property
    def block_tables(self) -> tuple[NDArray[np.int32], ...]:
        """By group, in the order given: blocks of the sequence in each row (`block_tables`)."""
        return self._kv.tables

    @property
    def status_counters(self) -> StatusCounters:
        """A snapshot."""
        return replace(
            self._counters,
            running=len(self._roster.running),
            waiting=len(self._roster.waiting),
            kv_blocks_used=self._kv.blocks_used,
            kv_blocks_total=self._kv.blocks_total,
            admission_holds_total={
                cause.value: count for cause, count in self._admission.holds.items()
            },
        )

    # Requests come and go.

    def submit(self, request: GenerateRequest, now_s: float) -> None:
        """Queue a request; one whose `emitted_ids` already end it finishes with the next step.

        Raises `InvalidRequest`, `ContextTooLong` when it can never fit, `Overloaded` when the
        queue is full.
        """
        self._check_valid(request)
        self._check_fits(request)
        waiting = self._roster.waiting
        if len(waiting) >= self._config.max_waiting:
            wait_s = waiting.head_wait_s(now_s)
            raise Overloaded(
                f"{len(waiting)} requests are waiting already",
                delay_s=min(max(wait_s, _SHORTEST_DELAY_S), _LONGEST_DELAY_S),
            )
        self._arrivals += 1
        sequence = Sequence(
            request,
            arrival_s=now_s,
            arrival_order=self._arrivals,
            end_token_ids=self._end_token_ids,
        )
        reason = sequence.finish_reason if request.emitted_ids else None
        if reason is not None:
            self._counters.finished_total += 1
            nothing = TokenChunk(sequence.request_id, sequence.output_start, ())
            self._undelivered.chunks.append(_closing(nothing, sequence, reason))
            return
        self._roster.add(sequence)
        self._deadlines.add(sequence)

    def abort(self, request_id: str) -> bool:
        """End a request at once and free its memory; nothing is reported for it any more.

        False when no such request is live.
        """
        sequence = self._roster.live.get(request_id)
        if sequence is None:
            return False
        self._roster.end(sequence)
        self._roster.sweep()
        self._counters.aborted_total += 1
        return True

    def fail(self, plan: StepPlan, error: SteelyardError) -> None:
        """End all requests of a plan that could not be computed; used instead of `apply`.

        The failures are reported with the next outcome.
        """
        for piece in plan.slices:
            if piece.sequence.is_running:
                self._fail(piece.sequence, error)
        self._roster.sweep()

    # The loop's two halves.

    def plan(self, now_s: float) -> StepPlan:
        """The next step. Never empty while a request is live; allocates, but computes nothing."""
        self._fail_late(now_s)
        plan = self._planner.plan(now_s)
        if plan.is_empty and self.has_work:
            plan.wake_at_s = now_s
        return plan

    def apply(self, plan: StepPlan, result: StepResult, now_s: float) -> StepOutcome:
        """Take in what the runner drew for `plan`, and say what clients are to be told.

        Sequences that ended since `plan` are passed over. An empty plan is applied with
        `StepResult.nothing()`.
        """
        if not plan.is_empty:
            if self._take_in(plan, result, self._undelivered.chunks):
                self._roster.sweep()
            self._record(plan, result)
        self._fail_late(now_s)
        outcome, self._undelivered = self._undelivered, StepOutcome([], [])
        return outcome

    # Applying.

    def _take_in(self, plan: StepPlan, result: StepResult, chunks: list[TokenChunk]) -> bool:
        """Advance every sequence of the plan; True when at least one finished."""
        kv, token_ids, logprobs = self._kv, result.token_ids, result.logprobs
        drawn = finished = 0
        chunks_before = len(chunks)
        # One round per slice: kept free of calls but for full blocks and last tokens.
        for piece in plan.slices:
            sequence = piece.sequence
            if sequence.row < 0:
                drawn += piece.samples
                continue
            computed = piece.start + piece.count
            sequence.computed_tokens = computed
            if computed >= sequence.commit_at_tokens:
                kv.commit(sequence)
            if not piece.samples:
                continue
            token = token_ids[drawn]
            logprob = logprobs[drawn]
            drawn += 1
            sequence.token_ids.append(token)
            chunk = TokenChunk(
                sequence.request_id,
                computed - sequence.prompt_tokens,
                (token,),
                None if logprob is None else (logprob,),
                usage=sequence.usage if computed == sequence.prompt_tokens else None,
            )
            if computed + 1 >= sequence.length_limit or token in sequence.stop_ids:
                reason = sequence.finish_reason
                if reason is not None:
                    chunk = _closing(chunk, sequence, reason)
                    self._roster.end(sequence)
                    finished += 1
            chunks.append(chunk)
        assert drawn == len(token_ids), "the runner drew for other slices than planned"
        self._counters.produced_tokens_total += len(chunks) - chunks_before
        self._counters.finished_total += finished
        return finished > 0

    def _record(self, plan: StepPlan, result: StepResult) -> None:
        """Count a step that was computed, and learn from the time it took."""
        counters = self._counters
        counters.steps_total += 1
        counters.computed_tokens_total += plan.tokens
        memory = _STEP_TIME_MEMORY if counters.steps_total > 1 else 0.0
        counters.step_time_s += (1.0 - memory) * (result.elapsed_s - counters.step_time_s)
        self.cost.observe(
            decode_tokens=plan.decode_tokens,
            prefill_tokens=plan.prefill_tokens,
            attended_tokens=plan.attended_tokens,
            elapsed_s=result.elapsed_s,
        )

    # Ending requests otherwise.

    def _fail_late(self, now_s: float) -> None:
        is_late = False
        for sequence in self._deadlines.pop_late(self._roster.live, now_s):
            waited_s = now_s - sequence.arrival_s
            self._fail(sequence, DeadlineExceeded(f"not done after {waited_s:.3f} s"))
            is_late = True
        if is_late:
            self._roster.sweep()

    def _fail(self, sequence: Sequence, error: SteelyardError) -> None:
        """End a request with an error; `sweep` afterwards."""
        self._roster.end(sequence)
        self._counters.failed_total += 1
        self._undelivered.failures.append((sequence.request_id, error))

    # Refusing requests.

    def _check_valid(self, request: GenerateRequest) -> None:
        if not request.prompt_ids:
            raise InvalidRequest("must hold at least one token", param="prompt_ids")
        if request.sampling.max_tokens < 1:
            raise InvalidRequest("must be at least 1", param="max_tokens")
        if request.request_id in self._roster.live:
            raise InvalidRequest(f"{request.request_id!r} is in use", param="request_id")
        for name, token_ids in (
            ("prompt_ids", request.prompt_ids),
            ("emitted_ids", request.emitted_ids),
        ):
            if token_ids and not (min(token_ids) >= 0 and max(token_ids) <= _MAX_TOKEN_ID):
                raise InvalidRequest("holds a number that is no token id", param=name)

    def _check_fits(self, request: GenerateRequest) -> None:
        prompt_tokens, max_tokens = len(request.prompt_ids), request.sampling.max_tokens
        tokens = prompt_tokens + max_tokens
        asked = f"{prompt_tokens} prompt tokens and max_tokens of {max_tokens}"
        if tokens > self._config.context_tokens:
            raise ContextTooLong(
                f"{asked} exceed the context of {self._config.context_tokens} tokens",
                param="max_tokens",
            )
        # The last token drawn ends the request, so its KV is never needed.
        group = self._kv.group_too_small_for(tokens - 1)
        if group is not None:
            raise ContextTooLong(
                f"{asked} exceed the KV memory of group {group.name!r}:"
                f" {group.blocks - 1} blocks of {group.block_tokens} tokens",
                param="max_tokens",
                fix="ask for fewer tokens, or give kv_cache more memory",
            )

    def check_integrity(self) -> None:
        """Assert that requests, memory and claims agree. For tests and idle times."""
        self._roster.check_integrity()


def _attend_limit(groups: abc.Sequence[KVGroup]) -> int | None:
    """The longest window when no layer attends further; None when one does."""
    if any(group.kind in (GroupKind.FULL, GroupKind.COMPRESSED) for group in groups):
        return None
    return max((group.window_tokens or 1 for group in groups), default=None)


def _closing(chunk: TokenChunk, sequence: Sequence, reason: FinishReason) -> TokenChunk:
    """`chunk` as the last one of its stream."""
    return TokenChunk(
        chunk.request_id,
        chunk.start,
        chunk.token_ids,
        logprobs=chunk.logprobs,
        finish_reason=reason,
        stop_token_id=sequence.token_ids[-1] if reason == "stop" else None,
        usage=sequence.usage,
    )
