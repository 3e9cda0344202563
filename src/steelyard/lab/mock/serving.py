"""The engine that the mock pretends to be: who is served when, and when each token exists.

    submit → waiting (first come, first served) → running (a slot, KV memory) → prefill → tokens

Decides times only, on whatever `Timers` it is given; what a token looks like and how it travels is
the sink's business. Every time follows from other *due* times, not from when they were noticed, so
lateness never adds up and a run under virtual time is exact.
"""

from collections import deque
from dataclasses import dataclass
from typing import Protocol

from steelyard.lab.mock.config import MockConfig
from steelyard.lab.mock.drift import Drift
from steelyard.lab.mock.plans import Plan
from steelyard.lab.mock.timers import NS_PER_MS, NS_PER_S, Timers

__all__ = ["Batch", "Job", "Serving", "Sink"]

_NEVER = -1


@dataclass(frozen=True, slots=True)
class Batch:
    """Tokens [first, first + count) of an answer, which exist from `due_ns` on."""

    first: int
    count: int
    due_ns: int
    is_last: bool


class Sink(Protocol):
    """Where a job's tokens go."""

    def take(self, batch: Batch) -> None:
        """Called in order. May withdraw the job."""
        ...


class Job:
    """One request in the engine. `Serving` owns everything but the sink."""

    __slots__ = (
        "arrived_ns",
        "first_token_ns",
        "is_over",
        "kv_tokens",
        "last_token_ns",
        "next_ns",
        "plan",
        "preemptions",
        "prefilled_ns",
        "produced",
        "sink",
        "slot_ns",
    )

    def __init__(self, plan: Plan, sink: Sink, arrived_ns: int) -> None:
        self.plan = plan
        self.sink = sink
        self.arrived_ns = arrived_ns
        self.slot_ns: int | None = None
        """When it was first admitted; None before."""
        self.prefilled_ns: int | None = None
        self.first_token_ns: int | None = None
        self.last_token_ns: int | None = None
        """Of the tokens so far."""
        self.produced = 0
        self.kv_tokens = 0
        self.preemptions = 0
        self.is_over = False
        self.next_ns = _NEVER
        """When its next tokens are due; calls for other times are void."""


class Serving:
    """Slots, queue, prefill, KV memory and the pace of tokens."""

    def __init__(self, config: MockConfig, timers: Timers) -> None:
        self._config = config
        self._timers = timers
        self._waiting: deque[Job] = deque()
        self._running: dict[Job, None] = {}  # in order of admission; a set that remembers it
        self._prefill_free_ns = 0
        self._kv_used = 0
        self._drift = Drift(
            cv=config.drift_cv,
            memory_s=config.drift_s,
            seed=config.seed,
            start_ns=timers.now_ns(),
        )
        self._per_running_ns = config.itl_us_per_running * 1000
        self.preemptions_total = 0
        self.tokens_total = 0

    @property
    def running(self) -> int:
        """Requests being served."""
        return len(self._running)

    @property
    def waiting(self) -> int:
        """Requests in line."""
        return len(self._waiting)

    @property
    def kv_used_tokens(self) -> int:
        """Tokens held by running requests."""
        return self._kv_used

    def can_queue(self) -> bool:
        """False when one request more would exceed the queue's limit."""
        limit = self._config.queue_limit
        return limit is None or len(self._waiting) < limit or self._has_room(None)

    def submit(self, job: Job) -> None:
        """Serve `job` as soon as its turn comes."""
        self._waiting.append(job)
        self._admit(job.arrived_ns)

    def withdraw(self, job: Job) -> None:
        """Its client is gone, or it failed: free what it holds. Safe to repeat."""
        if job.is_over:
            return
        if job in self._running:
            self._release(job)
        else:
            self._waiting.remove(job)
        job.is_over = True
        self._admit(self._timers.now_ns())

    def _admit(self, at_ns: int) -> None:
        """Start those whose turn it is; the head of the line blocks the rest."""
        while self._waiting and self._has_room(self._waiting[0]):
            self._start(self._waiting.popleft(), at_ns)

    def _has_room(self, job: Job | None) -> bool:
        """Whether `job` could start now; None asks for one that needs a slot only."""
        slots, memory = self._config.slots, self._config.kv_tokens
        if job is None and self._waiting:
            return False
        if slots is not None and len(self._running) >= slots:
            return False
        if memory is None or job is None or not self._running:
            return True  # alone, even what cannot fit is served rather than blocking the line
        return self._kv_used + job.plan.prompt_tokens + job.produced < memory

    def _start(self, job: Job, at_ns: int) -> None:
        job.slot_ns = at_ns if job.slot_ns is None else job.slot_ns
        self._running[job] = None
        job.kv_tokens = job.plan.prompt_tokens + job.produced
        self._kv_used += job.kv_tokens
        rate = self._config.prefill_tokens_per_s
        ready_ns = at_ns
        if rate is not None:
            ready_ns = max(at_ns, self._prefill_free_ns) + round(job.kv_tokens / rate * NS_PER_S)
            self._prefill_free_ns = ready_ns
        job.prefilled_ns = ready_ns
        wait_ns = round(job.plan.ttft_ns * self._drift.factor(at_ns))
        if job.plan.fault_tokens == 0:
            wait_ns += job.plan.stall_ns
        self._schedule(job, ready_ns + wait_ns)

    def _schedule(self, job: Job, due_ns: int) -> None:
        job.next_ns = due_ns
        self._timers.at(due_ns, self._produce, job)

    def _produce(self, job: Job, due_ns: int) -> None:
        """A step of `job`: its next tokens exist now."""
        if job.next_ns != due_ns:
            return
        plan = job.plan
        first = job.produced
        count = min(self._config.bundle_tokens, plan.output_tokens - first)
        job.produced += count
        self.tokens_total += count
        if first == 0:
            job.first_token_ns = due_ns
        job.last_token_ns = due_ns
        is_last = job.produced == plan.output_tokens
        if is_last:
            self._release(job)
            job.is_over = True
        job.sink.take(Batch(first, count, due_ns, is_last))
        if is_last:
            self._admit(due_ns)
        elif job in self._running:  # the sink may have withdrawn it
            self._schedule(job, due_ns + self._gap_ns(job, due_ns))
            self._grow(job, count, due_ns)

    def _gap_ns(self, job: Job, at_ns: int) -> int:
        """Until the next event: one gap for each of its tokens, and the planted pause."""
        plan, config = job.plan, self._config
        count = min(config.bundle_tokens, plan.output_tokens - job.produced)
        draw = config.itl_ms.draw
        total_ms = sum(draw(plan.generator) for _ in range(count))
        slowed_ns = count * self._per_running_ns * (len(self._running) - 1)
        gap_ns = round((total_ms * NS_PER_MS + slowed_ns) * self._drift.factor(at_ns))
        if plan.stall_ns and job.produced - count < plan.fault_tokens <= job.produced:
            gap_ns += plan.stall_ns
        return gap_ns

    def _grow(self, job: Job, count: int, at_ns: int) -> None:
        """Take KV memory for new tokens; when it is full, the youngest gives up its own."""
        job.kv_tokens += count
        self._kv_used += count
        memory = self._config.kv_tokens
        while memory is not None and self._kv_used > memory and len(self._running) > 1:
            youngest = next(reversed(self._running))
            self._release(youngest)
            youngest.preemptions += 1
            self.preemptions_total += 1
            self._waiting.appendleft(youngest)
        self._admit(at_ns)

    def _release(self, job: Job) -> None:
        del self._running[job]
        self._kv_used -= job.kv_tokens
        job.kv_tokens = 0
        job.next_ns = _NEVER
