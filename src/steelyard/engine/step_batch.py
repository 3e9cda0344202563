"""A plan as index arrays: the flat token batch that models and attention read.

slices         A[4, 7)      B[7, 8)   C[0, 2)
token_ids      a4 a5 a6     b7        c0 c1
positions       4  5  6      7         0  1
starts         0            3         4         6        first token of each sequence, and the end
contexts                7          8        2            tokens in the cache after this step
sample_rows                 3            5               last tokens of the sampling slices
"""

from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from steelyard.scheduling.sequence import Sequence
from steelyard.scheduling.step_plan import StepPlan

__all__ = ["StepBatch", "lay_out"]


@dataclass(frozen=True, slots=True)
class StepBatch:
    """Index arrays on the host; backends move what they need."""

    token_ids: Tensor
    """int64 [tokens]."""
    sample_rows: Tensor
    """int64 [samples]."""
    sampling: list[Sequence]
    """The sequences that sample, in order."""
    positions: NDArray[np.int32]
    starts: NDArray[np.int32]
    contexts: NDArray[np.int32]
    rows: NDArray[np.int32]
    """int32 [sequences]: each one's row in the block tables."""

    def slots(self, table: NDArray[np.int32], block_tokens: int) -> NDArray[np.int32]:
        """int32 [tokens]: where each token's KV goes, as block · block_tokens + offset."""
        row_of_token = np.repeat(self.rows, np.diff(self.starts))
        blocks = table[row_of_token, self.positions // block_tokens]
        slots: NDArray[np.int32] = blocks * np.int32(block_tokens) + self.positions % block_tokens
        return slots


def lay_out(plan: StepPlan) -> StepBatch:
    """Flatten a plan that is not empty. Linear in its tokens, about a microsecond per slice."""
    token_ids: list[int] = []
    counts: list[int] = []
    first: list[int] = []
    rows: list[int] = []
    sample_rows: list[int] = []
    sampling: list[Sequence] = []
    for piece in plan.slices:
        sequence = piece.sequence
        if piece.count == 1:
            token_ids.append(sequence.token_ids[piece.start])
        else:
            token_ids += sequence.token_ids[piece.start : piece.start + piece.count]
        first.append(piece.start)
        counts.append(piece.count)
        rows.append(sequence.row)
        if piece.samples:
            sample_rows.append(len(token_ids) - 1)
            sampling.append(sequence)
    begin = np.array(first, dtype=np.int32)
    if len(token_ids) == len(first):
        # One token each, the usual step: everything but the starts is one array.
        starts, contexts, positions = np.arange(len(first) + 1, dtype=np.int32), begin + 1, begin
    else:
        length = np.array(counts, dtype=np.int32)
        starts = np.zeros(len(counts) + 1, dtype=np.int32)
        np.cumsum(length, out=starts[1:])
        contexts = begin + length
        # Position = index in the batch, shifted so that each slice begins at its own start.
        shift = np.repeat(begin - starts[:-1], length)
        positions = np.arange(len(token_ids), dtype=np.int32) + shift
    return StepBatch(
        token_ids=torch.tensor(token_ids, dtype=torch.int64),
        sample_rows=torch.tensor(sample_rows, dtype=torch.int64),
        sampling=sampling,
        positions=positions,
        starts=starts,
        contexts=contexts,
        rows=np.array(rows, dtype=np.int32),
    )
