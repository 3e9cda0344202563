"""Self-attention with rotary positions over a KV cache that the engine owns.

The model names what it needs (`AttentionShape`); where keys and values lie and how a step's tokens
attend to them is behind `AttentionStep`, implemented in `engine`.
"""

from dataclasses import dataclass
from typing import Protocol

from torch import Tensor

from steelyard.models.layers.rotary import RotaryTable
from steelyard.models.ops.matrix import Matrix, Norm

__all__ = ["AttentionShape", "AttentionStep", "Rotation", "SelfAttention"]


@dataclass(frozen=True, slots=True)
class AttentionShape:
    """What one layer keeps per token, and how far it looks back."""

    query_heads: int
    kv_heads: int
    head_size: int
    window_tokens: int | None = None
    """Newest tokens attended to, the query's own included; None means all."""

    @property
    def scale(self) -> float:
        """What scores are multiplied with."""
        return float(self.head_size**-0.5)


@dataclass(frozen=True, slots=True)
class Rotation:
    """What happens to queries and keys before they meet."""

    table: RotaryTable
    query_norm: Norm | None = None
    """Normalises each head first (Qwen 3); None means it does not happen."""
    key_norm: Norm | None = None


class AttentionStep(Protocol):
    """The KV cache as one step sees it."""

    def attend(self, layer: int, qkv: Tensor, rotation: Rotation) -> Tensor:
        """Store the step's keys and values of `layer`, then attend.

        qkv: float32 [tokens, (query_heads + 2 * kv_heads) * head_size], may be overwritten.
        Returns float32 [tokens, query_heads * head_size].
        """
        ...


@dataclass(frozen=True, slots=True)
class SelfAttention:
    """x += out(attend(qkv(norm(x))))."""

    layer: int
    norm: Norm
    qkv: Matrix
    out: Matrix
    rotation: Rotation

    def forward(self, x: Tensor, step: AttentionStep) -> None:
        """Adds to x, float32 [tokens, hidden], in place."""
        heads = step.attend(self.layer, self.qkv.linear(x, self.norm), self.rotation)
        self.out.linear_add(heads, x)
