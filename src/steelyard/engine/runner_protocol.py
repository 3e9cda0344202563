"""What the step loop asks of whatever computes its steps.

`engine.runner` does it with torch, `engine.fake_runner` pretends; `engine.runners` chooses.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from steelyard.scheduling.config import KVGroup
from steelyard.scheduling.step_plan import StepPlan, StepResult

__all__ = ["BlockTables", "LoadedModel", "ProgressReport", "RunnerError", "StepRunner"]

BlockTables = tuple[NDArray[np.int32], ...]
"""By group: the blocks of the sequence in each row; see `scheduling.block_tables`."""

ProgressReport = Callable[[float, str], None]
"""Takes the share done, in [0, 1], and what is being done; cheap enough to call often."""


class RunnerError(Exception):
    """This step failed, but the runner is sound: later steps may be run.

    Every other exception out of `run` means that nothing is known about the runner's state, and
    ends the process.
    """


@dataclass(frozen=True, slots=True)
class LoadedModel:
    """What is known once the weights are in memory."""

    context_tokens: int
    """Prompt and output together: the model's limit or the configured one, the smaller."""
    vocab_size: int
    end_token_ids: tuple[int, ...]
    groups: tuple[KVGroup, ...]
    """The KV memory that was allocated."""
    details: dict[str, str] = field(default_factory=dict)
    """For people: device, precision, kernels, bytes."""


class StepRunner(Protocol):
    """A model in memory. Used by one thread, the process's main one."""

    def load(self, report: ProgressReport) -> LoadedModel:
        """Bring the model into memory and allocate KV; called once, before `run`.

        Raises `CheckpointError` or `SettingsError` when that cannot work.
        """
        ...

    def bind(self, tables: BlockTables) -> None:
        """Take the tables by which sequences find their KV; called once, between the two others.

        The scheduler writes them in place before each plan; they are never reallocated.
        """
        ...

    def run(self, plan: StepPlan) -> StepResult:
        """Compute a plan that is not empty. Raises `RunnerError` when only this step failed."""
        ...
