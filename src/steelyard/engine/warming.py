"""Turns `Warm` commands into requests for one token that nobody is sent.

They go through the scheduler like any other, after everything clients wait for, and a few at a
time, so that warming never fills the queue.
"""

from collections import deque
from dataclasses import dataclass, field

from steelyard.contract import Clock, GenerateRequest, SamplingParams
from steelyard.contract.errors import SteelyardError, to_info
from steelyard.contract.wire import Done, Warm
from steelyard.engine.admission import RESERVED_ID_PREFIX, check_request
from steelyard.scheduling.scheduler import Scheduler

__all__ = ["Answer", "Warming"]

Answer = tuple[int, Done]
"""A connection and what to send over it."""

_AT_ONCE = 4
_PRIORITY = 1_000_000
_SAMPLING = SamplingParams(max_tokens=1, temperature=0.0, ignore_eos=True)


@dataclass(eq=False, slots=True)
class _Job:
    """One `Warm` command under way."""

    connection_id: int
    command: Warm
    pending: deque[tuple[int, ...]]
    submitted: set[str] = field(default_factory=set)


class Warming:
    """All `Warm` commands under way; each is answered once, unless its client leaves."""

    def __init__(self, scheduler: Scheduler, clock: Clock, vocab_size: int) -> None:
        self._scheduler = scheduler
        self._clock = clock
        self._vocab_size = vocab_size
        self._jobs: dict[str, _Job] = {}
        """By the id of each request that was submitted and has not ended."""
        self._requests = 0

    def begin(self, connection_id: int, command: Warm) -> Answer | None:
        """Start a command; the answer when there is nothing to wait for."""
        return self._go_on(_Job(connection_id, command, deque(command.prompts)))

    def on_end(self, request_id: str, error: SteelyardError | None) -> Answer | None:
        """One of the requests ended; the answer when its command is complete. Others are ignored.

        The first error ends the whole command.
        """
        job = self._jobs.pop(request_id, None)
        if job is None:
            return None
        job.submitted.discard(request_id)
        return self._go_on(job) if error is None else self._fail(job, error)

    def give_up(self, error: SteelyardError) -> list[Answer]:
        """Stop everything; the answers to all commands under way."""
        return [self._fail(job, error) for job in set(self._jobs.values())]

    def forget(self, connection_id: int) -> None:
        """A client is gone: stop what it asked for."""
        for job in {job for job in self._jobs.values() if job.connection_id == connection_id}:
            self._cancel(job)

    def _go_on(self, job: _Job) -> Answer | None:
        while job.pending and len(job.submitted) < _AT_ONCE:
            try:
                self._submit(job, job.pending.popleft())
            except SteelyardError as error:
                return self._fail(job, error)
        return None if job.submitted else (job.connection_id, Done(job.command.query_id))

    def _submit(self, job: _Job, prompt_ids: tuple[int, ...]) -> None:
        self._requests += 1
        request = GenerateRequest(
            request_id=f"{RESERVED_ID_PREFIX}warm-{self._requests}",
            prompt_ids=prompt_ids,
            sampling=_SAMPLING,
            priority=_PRIORITY,
            cache_salt=job.command.cache_salt,
        )
        check_request(request, vocab_size=self._vocab_size)
        self._scheduler.submit(request, self._clock.now())
        self._jobs[request.request_id] = job
        job.submitted.add(request.request_id)

    def _fail(self, job: _Job, error: SteelyardError) -> Answer:
        self._cancel(job)
        return job.connection_id, Done(job.command.query_id, to_info(error))

    def _cancel(self, job: _Job) -> None:
        for request_id in job.submitted:
            del self._jobs[request_id]
            self._scheduler.abort(request_id)
        job.submitted.clear()
        job.pending.clear()
