"""A decoder-only transformer as the engine runs it: a flat batch of tokens in, logits out."""

from collections.abc import Sequence
from dataclasses import dataclass

from torch import Tensor

from steelyard.models.layers.attention import AttentionShape, AttentionStep, SelfAttention
from steelyard.models.layers.mlp import GatedMLP
from steelyard.models.ops.matrix import Embedding, Norm

__all__ = ["Block", "Decoder"]


@dataclass(frozen=True, slots=True)
class Block:
    """One layer."""

    attention: SelfAttention
    mlp: GatedMLP

    def forward(self, x: Tensor, step: AttentionStep) -> None:
        self.attention.forward(x, step)
        self.mlp.forward(x)


@dataclass(frozen=True, slots=True)
class Decoder:
    """Families build it; the engine calls `forward` and reads `shapes`."""

    embedding: Embedding
    blocks: Sequence[Block]
    shapes: Sequence[AttentionShape]
    """One per layer."""
    norm: Norm
    head: Embedding
    """May be the embedding itself (tied weights)."""

    def forward(self, token_ids: Tensor, sample_rows: Tensor, step: AttentionStep) -> Tensor:
        """Run a flat batch.

        token_ids:    int64 [tokens], any number of sequences one after the other
        sample_rows:  int64 [samples], the tokens whose next one is wanted
        Returns float32 logits [samples, vocabulary].
        """
        x = self.embedding.rows(token_ids)
        for block in self.blocks:
            block.forward(x, step)
        return self.head.linear(x[sample_rows], self.norm)

    @property
    def bytes(self) -> int:
        """Memory of all matrices."""
        matrices = [self.embedding] if self.head is self.embedding else [self.embedding, self.head]
        layers = sum(
            block.attention.qkv.bytes
            + block.attention.out.bytes
            + block.mlp.gate_up.bytes
            + block.mlp.down.bytes
            for block in self.blocks
        )
        return layers + sum(matrix.bytes for matrix in matrices)
