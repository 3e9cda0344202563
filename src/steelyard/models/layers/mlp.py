"""The gated feed-forward block (SwiGLU, Shazeer 2020)."""

from dataclasses import dataclass

from torch import Tensor

from steelyard.models.ops.matrix import Matrix, Norm

__all__ = ["GatedMLP"]


@dataclass(frozen=True, slots=True)
class GatedMLP:
    """x += down(silu(gate(norm(x))) * up(norm(x)))."""

    norm: Norm
    gate_up: Matrix
    down: Matrix

    def forward(self, x: Tensor) -> None:
        """Adds to x, float32 [tokens, hidden], in place."""
        self.down.linear_add(self.gate_up.linear_gate(x, self.norm), x)
