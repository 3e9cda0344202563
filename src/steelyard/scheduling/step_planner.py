"""Which tokens the next step computes.

In this order, all into one flat batch:

    1. one token for every stream that runs
    2. prompts under way, as far as the step's prefill allowance goes
    3. waiting requests, in order, while allowance, rows and memory last

Memory is taken as slices are planned. When it runs out for 1 or 2, somebody is preempted; then 3
is left out of this step. 3 never preempts. The first sequence in order is never a victim and gets
at least one token in every step, so it finishes; by induction everybody does.
"""

from steelyard.scheduling.admission import Admission, HoldCause
from steelyard.scheduling.config import SchedulerConfig
from steelyard.scheduling.kv_manager import KVManager
from steelyard.scheduling.preemption import choose_victim
from steelyard.scheduling.prefill_allowance import PrefillAllowance
from steelyard.scheduling.roster import Roster
from steelyard.scheduling.sequence import Sequence
from steelyard.scheduling.status_counters import StatusCounters
from steelyard.scheduling.step_cost import StepCost, attended_tokens
from steelyard.scheduling.step_plan import Slice, StepPlan

__all__ = ["StepPlanner"]

_LOOKS_PER_STEP = 32
"""Requests found to wait for a prefix in one step; looking takes a hash per block of a prompt."""


class StepPlanner:
    """Plans steps over a roster; the plan itself is its only memory of a step."""

    __slots__ = (
        "_admission",
        "_attend_limit",
        "_config",
        "_cost",
        "_counters",
        "_kv",
        "_roster",
    )

    def __init__(
        self,
        config: SchedulerConfig,
        *,
        roster: Roster,
        kv: KVManager,
        admission: Admission,
        cost: StepCost,
        counters: StatusCounters,
    ) -> None:
        self._config = config
        self._roster = roster
        self._kv = kv
        self._admission = admission
        self._cost = cost
        self._counters = counters
        self._attend_limit = cost.attend_limit

    def plan(self, now_s: float) -> StepPlan:
        """The next step; never empty while a request is live."""
        plan = StepPlan()
        preemptions = self._counters.preemptions_total
        unfinished = self._plan_decodes(plan)
        if unfinished or self._roster.waiting:
            allowance = PrefillAllowance(self._config, self._cost, plan)
            unfinished = self._plan_prefills(plan, unfinished, allowance)
            if self._counters.preemptions_total == preemptions:
                self._plan_admissions(plan, unfinished, allowance, now_s)
            else:
                self._drop_preempted(plan)
        return plan

    def _plan_decodes(self, plan: StepPlan) -> list[Sequence]:
        """Plan one token for every stream; returns the sequences still in prefill."""
        prefills: list[Sequence] = []
        slices = plan.slices
        attended = 0
        # One round per running sequence: kept free of calls except at block boundaries.
        for sequence in self._roster.running:
            start = sequence.computed_tokens
            if start < sequence.prefill_end:
                prefills.append(sequence)
                continue
            if start >= sequence.room_tokens and not self._make_room(sequence, start + 1):
                continue
            slices.append(Slice(sequence, start, 1, True))
            attended += start
        plan.decode_tokens = len(slices)
        plan.attended_tokens = attended + len(slices)
        if self._attend_limit is not None:
            plan.attended_tokens = sum(
                [attended_tokens(piece.start, 1, self._attend_limit) for piece in slices]
            )
        return prefills

    def _plan_prefills(
        self, plan: StepPlan, prefills: list[Sequence], allowance: PrefillAllowance
    ) -> list[Sequence]:
        """Go on with prompts as far as the allowance goes; returns those that need more steps."""
        unfinished: list[Sequence] = []
        for sequence in prefills:
            if not sequence.is_running:
                continue  # preempted while this step was planned
            owed = len(sequence.token_ids) - sequence.computed_tokens
            count = allowance.grant(sequence.computed_tokens, owed)
            if not count or self._plan_prefill(plan, sequence, count, allowance) < owed:
                unfinished.append(sequence)
        return unfinished

    def _plan_prefill(
        self, plan: StepPlan, sequence: Sequence, count: int, allowance: PrefillAllowance
    ) -> int:
        """Plan up to `count` tokens, as memory allows; 0 when the sequence itself gave way."""
        start = sequence.computed_tokens
        fitting = self._kv.fit(sequence, count)
        if not fitting:
            if not self._make_room(sequence, start + 1):
                return 0
            fitting = self._kv.fit(sequence, count)
        end = self._kv.slice_end(sequence, start + fitting)
        extended = self._kv.extend(sequence, end)
        assert extended, "memory that fits was not there"
        count = end - start
        plan.slices.append(Slice(sequence, start, count, end == len(sequence.token_ids)))
        plan.prefill_tokens += count
        plan.attended_tokens += attended_tokens(start, count, self._attend_limit)
        allowance.spend(start, count)
        return count

    def _plan_admissions(
        self,
        plan: StepPlan,
        unfinished: list[Sequence],
        allowance: PrefillAllowance,
        now_s: float,
    ) -> None:
        """Start waiting sequences in order, until one has to wait for more than a prefix."""
        waiting, admission = self._roster.waiting, self._admission
        if admission.awaits_batch(waiting, decode_tokens=plan.decode_tokens, now_s=now_s):
            for sequence in waiting:
                admission.note_hold(sequence, HoldCause.MIN_BATCH)
            return
        started = False
        looks = _LOOKS_PER_STEP
        # Those known to wait for a prefix cost one look-up each, and the queue is bounded.
        for sequence in waiting:
            if sequence.held_key is not None and self._kv.is_pending(sequence.held_key):
                continue
            cause = self._start(plan, sequence, unfinished, allowance)
            if cause is None:
                started = True
                continue
            admission.note_hold(sequence, cause)
            looks -= 1
            if cause is not HoldCause.PREFIX or not looks:
                break
        if started:
            waiting.drop_started()

    def _start(
        self,
        plan: StepPlan,
        sequence: Sequence,
        unfinished: list[Sequence],
        allowance: PrefillAllowance,
    ) -> HoldCause | None:
        """Start a waiting sequence with a first slice, or say why not."""
        kv = self._kv
        if not kv.free_rows:
            return HoldCause.SLOTS
        if not allowance.grant(0, 1):
            return HoldCause.TOKENS
        hit = kv.find_prefix(sequence)
        sequence.held_key = kv.awaited_key(sequence, hit)
        if sequence.held_key is not None:
            return HoldCause.PREFIX
        owed = len(sequence.token_ids) - hit.tokens
        count = allowance.grant(hit.tokens, owed)
        # A crumb left over by others is not worth a row.
        if plan.prefill_tokens and count < min(owed, self._config.min_prefill_tokens):
            return HoldCause.TOKENS
        if self._roster.running and self._admission.exceeds_memory(
            kv.used_share_after(sequence, hit, unfinished)
        ):
            return HoldCause.MEMORY
        self._roster.start(sequence, hit)
        if not sequence.preemptions:
            self._count_prompt(sequence, hit.tokens)
        # Fits without preempting: into what the threshold leaves, or alone, as seen at the door.
        if self._plan_prefill(plan, sequence, count, allowance) < owed:
            unfinished.append(sequence)
        return None

    def _count_prompt(self, sequence: Sequence, hit_tokens: int) -> None:
        """Count a first admission. What a preemption makes necessary again is no cache hit."""
        sequence.cached_tokens = min(hit_tokens, sequence.prompt_tokens)
        self._counters.prompt_tokens_total += sequence.prompt_tokens
        self._counters.cached_tokens_total += sequence.cached_tokens

    def _make_room(self, sequence: Sequence, end: int) -> bool:
        """Get memory up to `end`, preempting as needed; False when `sequence` itself gave way."""
        while not self._kv.extend(sequence, end):
            victim = choose_victim(self._kv, self._roster.running, sequence, end)
            self._roster.preempt(victim)
            self._counters.preemptions_total += 1
            if victim is sequence:
                return False
        return True

    def _drop_preempted(self, plan: StepPlan) -> None:
        """Take sequences that were preempted after their slice was planned out of the step."""
        self._roster.sweep()
        plan.slices = [piece for piece in plan.slices if piece.sequence.is_running]
        plan.decode_tokens = plan.prefill_tokens = plan.attended_tokens = 0
        for piece in plan.slices:
            if piece.start < piece.sequence.prefill_end:
                plan.prefill_tokens += piece.count
            else:
                plan.decode_tokens += piece.count
            plan.attended_tokens += attended_tokens(piece.start, piece.count, self._attend_limit)
