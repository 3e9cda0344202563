"""May the next waiting request start now? And if not, why: counted by cause.

Three triggers, all of which only delay the start of a prefill:

    min_batch     while decodes run, wait until this many requests can be prefilled together …
    max_wait      … but for no request longer than this, nor for one that was preempted
    memory        keep a share of the KV blocks free for the growth of what runs

When nothing runs, nothing is held back. The order of the queue is `waiting_queue`'s business, the
prefill budget `prefill_allowance`'s.
"""

import enum
from collections.abc import Collection

from steelyard.scheduling.config import SchedulerConfig
from steelyard.scheduling.sequence import Sequence

__all__ = ["Admission", "HoldCause"]


class HoldCause(enum.StrEnum):
    """Why a waiting request was held back."""

    MIN_BATCH = "min_batch"
    """Too few requests wait, and none has waited for `max_wait_s`."""
    SLOTS = "slots"
    """`max_running` sequences run."""
    TOKENS = "tokens"
    """The step's prefill budget is spent."""
    MEMORY = "memory"
    """Its prompt would take the used share of blocks past `memory_threshold`."""
    PREFIX = "prefix"
    """A running sequence is about to compute the prefix it shares."""


class Admission:
    """The three triggers and the count of holds."""

    __slots__ = ("_config", "holds")

    def __init__(self, config: SchedulerConfig) -> None:
        self._config = config
        self.holds = dict.fromkeys(HoldCause, 0)
        """Requests held back, by cause. A request counts once until its cause changes."""

    def awaits_batch(
        self, waiting: Collection[Sequence], *, decode_tokens: int, now_s: float
    ) -> bool:
        """Whether prefill should wait for more requests to come."""
        config = self._config
        if not decode_tokens or not config.max_wait_s or len(waiting) >= config.min_batch:
            return False
        # At most `min_batch` requests are looked at.
        return all(
            now_s - sequence.arrival_s < config.max_wait_s and not sequence.preemptions
            for sequence in waiting
        )

    def exceeds_memory(self, used_share_after: float) -> bool:
        """Whether an admission after which this share is used leaves too little to grow.

        To be asked only while something runs.
        """
        return used_share_after > self._config.memory_threshold

    def note_hold(self, sequence: Sequence, cause: HoldCause) -> None:
        """Count that `sequence` was held back."""
        if sequence.held_by is not cause:
            sequence.held_by = cause
            self.holds[cause] += 1
