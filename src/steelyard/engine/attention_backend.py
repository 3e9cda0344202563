"""What an attention backend is: it owns the KV pages and opens a view of them for each step.

`native_attention` uses the compiled CPU kernels, `reference_attention` plain PyTorch anywhere.
"""

from typing import Protocol

from steelyard.engine.runner_protocol import BlockTables
from steelyard.engine.step_batch import StepBatch
from steelyard.models.layers.attention import AttentionStep

__all__ = ["AttentionBackend"]


class AttentionBackend(Protocol):
    """KV pages of all layers, zeroed at the start: stale values are never NaN."""

    name: str

    def bind(self, tables: BlockTables) -> None:
        """Take the block tables, by group; the scheduler changes them in place."""
        ...

    def open(self, batch: StepBatch) -> AttentionStep:
        """What the layers of one step attend through; valid until the next `open`."""
        ...
