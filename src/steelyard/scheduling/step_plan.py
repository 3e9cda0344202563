"""What the scheduler asks of the runner for one step, what it gets back, and what it makes of it.

One idea: there is no prefill phase and no decode phase. Each sequence has tokens whose KV is not
yet computed; a step computes some of them for many sequences as one flat batch:

    sequence A (prefill, 3 of 9 left)   B (decode)   C (last 2 of its prompt, then samples)
    tokens:    a4 a5 a6                 b7           c0 c1
    slices:    [4, 7)                   [7, 8)       [0, 2)
    samples:   no                       yes          yes
"""

from dataclasses import dataclass, field

import msgspec

from steelyard.contract import TokenChunk, TokenLogprobs
from steelyard.contract.errors import SteelyardError
from steelyard.scheduling.sequence import Sequence

__all__ = ["Slice", "StepOutcome", "StepPlan", "StepResult"]


class Slice(msgspec.Struct, gc=False):
    """Tokens [start, start + count) of one sequence, computed in this step.

    A struct outside garbage collection because a step makes one per running sequence; it can be
    part of no cycle, for sequences do not refer to slices.
    """

    sequence: Sequence
    start: int
    count: int
    samples: bool
    """True when the slice reaches the newest token, so its last logits give the next one."""


@dataclass(slots=True)
class StepPlan:
    """One step's work. An empty plan needs no runner, but is applied like any other."""

    slices: list[Slice] = field(default_factory=list)
    decode_tokens: int = 0
    """Tokens of slices that continue a stream (count 1, sampling, all before it computed)."""
    prefill_tokens: int = 0
    """All other tokens: prompts, and what a preemption made necessary to compute again."""
    attended_tokens: int = 0
    """Sum over all computed tokens of the tokens they attend to: the attention work."""
    wake_at_s: float | None = None
    """For an empty plan: when to plan again; None means when a command arrives."""

    @property
    def is_empty(self) -> bool:
        return not self.slices

    @property
    def tokens(self) -> int:
        return self.decode_tokens + self.prefill_tokens


@dataclass(slots=True)
class StepResult:
    """What the runner drew: one entry per slice that `samples`, in the plan's order."""

    token_ids: list[int]
    logprobs: list[TokenLogprobs | None]
    elapsed_s: float

    @classmethod
    def nothing(cls) -> "StepResult":
        """The result of an empty plan."""
        return cls(token_ids=[], logprobs=[], elapsed_s=0.0)


@dataclass(frozen=True, slots=True)
class StepOutcome:
    """What clients are told after a step. Each request ends once: finished, failed or aborted."""

    chunks: list[TokenChunk]
    """At most one per request; the last one of a request carries its finish reason and usage."""
    failures: list[tuple[str, SteelyardError]]
    """Request ids that ended without a finish reason, and why."""
