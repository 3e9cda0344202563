"""What the scheduler asks of the runner for one step, and what it gets back.

One idea: there is no prefill phase and no decode phase. Each sequence has tokens whose KV is not
yet computed; a step computes some of them for many sequences as one flat batch:

    sequence A (prefill, 3 of 9 left)   B (decode)   C (last 2 of its prompt, then samples)
    tokens:    a4 a5 a6                 b7           c0 c1
    slices:    [4, 7)                   [7, 8)       [0, 2)
    samples:   no                       yes          yes
"""

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from steelyard.contract import TokenLogprobs

if TYPE_CHECKING:
    from steelyard.scheduling.sequence import Sequence

__all__ = ["Slice", "StepPlan", "StepResult"]


@dataclass(slots=True)
class Slice:
    """Tokens [start, start + count) of one sequence, computed in this step."""

    sequence: "Sequence"
    start: int
    count: int
    samples: bool
    """True when the slice reaches the newest token, so its last logits give the next one."""


@dataclass(slots=True)
class StepPlan:
    """One step's work. An empty plan means: nothing can run before `wake_at_s`."""

    slices: list[Slice] = field(default_factory=list)
    decode_tokens: int = 0
    """Tokens of slices that continue a stream (count 1, sampling, prompt already computed)."""
    prefill_tokens: int = 0
    """All other tokens."""
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
