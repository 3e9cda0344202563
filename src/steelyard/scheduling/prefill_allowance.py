"""How much prefill still fits into the step being planned.

Two bounds hold at once: tokens (`max_step_tokens`) and predicted seconds (`step_stretch`, only
while decodes run). A floor of tokens overrules the seconds, so that prompts always get on. Who is
granted the tokens, and in which order, is decided in `scheduler`.
"""

import math

from steelyard.scheduling.config import SchedulerConfig
from steelyard.scheduling.step_cost import StepCost
from steelyard.scheduling.step_plan import StepPlan

__all__ = ["PrefillAllowance"]

_CONTRAST = 4
"""The budget is divided by this where steps have to differ for their cost to be learned."""


class PrefillAllowance:
    """The rest of one step's prefill budget. Made once per step, after its decodes are planned."""

    __slots__ = ("_cost", "_floor_tokens", "_room_tokens", "_spare_s")

    def __init__(self, config: SchedulerConfig, cost: StepCost, plan: StepPlan) -> None:
        self._cost = cost
        self._room_tokens = config.max_step_tokens - plan.decode_tokens
        self._floor_tokens = config.min_prefill_tokens
        """Granted whatever it costs."""
        self._spare_s = math.inf
        if plan.decode_tokens and config.step_stretch < math.inf:
            self._spare_s = cost.spare_s(
                decode_tokens=plan.decode_tokens,
                decode_attended=plan.attended_tokens,
                stretch=config.step_stretch,
            )
            if cost.wants_contrast:
                self._floor_tokens = max(1, self._floor_tokens // _CONTRAST)
                self._spare_s /= _CONTRAST

    def grant(self, position: int, wanted: int) -> int:
        """How many of `wanted` tokens from `position` on fit; 0 when none do. Spends nothing."""
        count = min(wanted, self._room_tokens)
        if self._spare_s < math.inf:
            within = self._cost.prefill_within(self._spare_s, position)
            count = min(count, max(within, self._floor_tokens))
        return count

    def spend(self, position: int, count: int) -> None:
        """Take a planned slice off the budget."""
        self._room_tokens -= count
        self._floor_tokens = max(0, self._floor_tokens - count)
        if self._spare_s < math.inf:
            self._spare_s -= self._cost.prefill_s(count, position)
