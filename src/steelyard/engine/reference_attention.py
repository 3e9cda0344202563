"""Attention in plain PyTorch, for any device and head size: the truth kernels are tested against.

Keys and values of each sequence are gathered from their pages and multiplied in float32, one
sequence at a time. Clear before fast.
"""

from collections.abc import Sequence

import torch
from torch import Tensor

from steelyard.engine.kv_memory import KVPlan
from steelyard.engine.runner_protocol import BlockTables
from steelyard.engine.step_batch import StepBatch
from steelyard.models.layers.attention import AttentionShape, Rotation
from steelyard.models.layers.rotary import rotate
from steelyard.models.ops.torch_matrix import rms_norm

__all__ = ["ReferenceAttention", "attend_dense"]


class ReferenceAttention:
    """Pages as [blocks * block_tokens, kv_heads, head_size], keys and values apart."""

    name = "reference"

    def __init__(
        self,
        shapes: Sequence[AttentionShape],
        plan: KVPlan,
        dtype: torch.dtype,
        device: torch.device,
    ) -> None:
        self._shapes = shapes
        self._plan = plan
        self._device = device
        self._group_of = [plan.group_of(layer) for layer in range(len(shapes))]
        self._keys = [self._allocate(layer, dtype) for layer in range(len(shapes))]
        self._values = [self._allocate(layer, dtype) for layer in range(len(shapes))]
        self._tables: BlockTables = ()

    def bind(self, tables: BlockTables) -> None:
        self._tables = tables

    def open(self, batch: StepBatch) -> "ReferenceStep":
        slots, histories = [], []
        for group, table in zip(self._plan.groups, self._tables, strict=True):
            slots.append(self._to_device(torch.from_numpy(batch.slots(table, group.block_tokens))))
            histories.append(self._histories(batch, torch.from_numpy(table), group.block_tokens))
        return ReferenceStep(self, batch, slots, histories)

    def _histories(self, batch: StepBatch, table: Tensor, block_tokens: int) -> list[Tensor]:
        """By sequence: the slots of positions [0, context)."""
        histories = []
        for row, context in zip(batch.rows.tolist(), batch.contexts.tolist(), strict=True):
            positions = torch.arange(context)
            blocks = table[row, positions // block_tokens].long()
            histories.append(self._to_device(blocks * block_tokens + positions % block_tokens))
        return histories

    def _to_device(self, index: Tensor) -> Tensor:
        return index.to(self._device, torch.int64)

    def _allocate(self, layer: int, dtype: torch.dtype) -> Tensor:
        shape = self._shapes[layer]
        group = self._plan.groups[self._group_of[layer]]
        slots = group.blocks * group.block_tokens
        return torch.zeros(slots, shape.kv_heads, shape.head_size, dtype=dtype, device=self._device)


class ReferenceStep:
    """`AttentionStep` of one step."""

    def __init__(
        self,
        backend: ReferenceAttention,
        batch: StepBatch,
        slots: list[Tensor],
        histories: list[list[Tensor]],
    ) -> None:
        self._backend = backend
        self._starts = batch.starts.tolist()
        self._positions = backend._to_device(torch.from_numpy(batch.positions))
        self._slots = slots
        self._histories = histories

    def attend(self, layer: int, qkv: Tensor, rotation: Rotation) -> Tensor:
        backend = self._backend
        shape, group = backend._shapes[layer], backend._group_of[layer]
        heads = qkv.view(qkv.shape[0], -1, shape.head_size)
        at = shape.query_heads, shape.query_heads + shape.kv_heads
        queries, keys, values = heads[:, : at[0]], heads[:, at[0] : at[1]], heads[:, at[1] :]
        queries, keys = self._rotate(queries, keys, rotation)
        stored_keys, stored_values = backend._keys[layer], backend._values[layer]
        stored_keys[self._slots[group]] = keys.to(stored_keys.dtype)
        stored_values[self._slots[group]] = values.to(stored_values.dtype)
        # Queries take the pages' precision, as they do in the kernels.
        queries = queries.to(stored_keys.dtype)
        outputs = []
        for i, history in enumerate(self._histories[group]):
            span = slice(self._starts[i], self._starts[i + 1])
            output, _ = attend_dense(
                queries[span],
                stored_keys[history],
                stored_values[history],
                self._positions[span],
                shape,
            )
            outputs.append(output)
        return torch.cat(outputs).view(qkv.shape[0], -1)

    def _rotate(self, queries: Tensor, keys: Tensor, rotation: Rotation) -> tuple[Tensor, Tensor]:
        if rotation.query_norm is not None:
            queries = rms_norm(queries, rotation.query_norm)
        if rotation.key_norm is not None:
            keys = rms_norm(keys, rotation.key_norm)
        cosine = rotation.table.cosine[self._positions][:, None]
        sine = rotation.table.sine[self._positions][:, None]
        return rotate(queries, cosine, sine), rotate(keys, cosine, sine)


def attend_dense(
    queries: Tensor, keys: Tensor, values: Tensor, positions: Tensor, shape: AttentionShape
) -> tuple[Tensor, Tensor]:
    """Causal attention of one sequence.

    queries [n, query_heads, size] at `positions` [n]; keys, values [context, kv_heads, size].
    Returns float32 output [n, query_heads, size] and log-sum-exp [n, query_heads].
    """
    group = shape.query_heads // shape.kv_heads
    keys = keys.float().repeat_interleave(group, dim=1)
    values = values.float().repeat_interleave(group, dim=1)
    scores = torch.einsum("qhd,khd->hqk", queries.float(), keys) * shape.scale
    age = positions[:, None] - torch.arange(keys.shape[0], device=keys.device)[None, :]
    visible = age >= 0
    if shape.window_tokens is not None:
        visible &= age < shape.window_tokens
    scores = scores.masked_fill(~visible, float("-inf"))
    output = torch.einsum("hqk,khd->qhd", scores.softmax(-1), values)
    return output, scores.logsumexp(-1).transpose(0, 1)
