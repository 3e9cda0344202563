"""Attention on the compiled CPU kernels (models/native/csrc/attention.h)."""

from collections.abc import Sequence

import torch
from torch import Tensor

from steelyard.engine.kv_memory import KVPlan
from steelyard.engine.runner_protocol import BlockTables
from steelyard.engine.step_batch import StepBatch
from steelyard.models.layers.attention import AttentionShape, Rotation
from steelyard.models.native import interface
from steelyard.models.native.interface import NativeKernels

__all__ = ["NativeAttention", "native_attention_fits"]

_HEAD_SIZES = (64, 128)


def native_attention_fits(shapes: Sequence[AttentionShape]) -> bool:
    """Whether the kernels know these head sizes."""
    return all(shape.head_size in _HEAD_SIZES for shape in shapes)


class NativeAttention:
    """Pages in the kernels' own layout (pages.h), on huge pages."""

    name = "native"

    def __init__(
        self,
        kernels: NativeKernels,
        shapes: Sequence[AttentionShape],
        plan: KVPlan,
        dtype: torch.dtype,
    ) -> None:
        self._kernels = kernels
        self._plan = plan
        self._shapes = shapes
        self._group_of = [plan.group_of(layer) for layer in range(len(shapes))]
        self._pages = [self._allocate(layer, dtype) for layer in range(len(shapes))]
        self._tables: BlockTables = ()

    def bind(self, tables: BlockTables) -> None:
        self._tables = tables

    def open(self, batch: StepBatch) -> "NativeStep":
        batches = [
            self._kernels.StepBatch(
                batch.positions,
                batch.starts,
                batch.contexts,
                batch.rows,
                table,
                group.block_tokens,
            )
            for group, table in zip(self._plan.groups, self._tables, strict=True)
        ]
        return NativeStep(self._pages, self._shapes, [batches[i] for i in self._group_of])

    def _allocate(self, layer: int, dtype: torch.dtype) -> interface.KVPages:
        shape = self._shapes[layer]
        group = self._plan.groups[self._group_of[layer]]
        count = 2 * group.blocks * shape.kv_heads * group.block_tokens * shape.head_size
        pages = self._kernels.allocate(count * dtype.itemsize).view(dtype)
        return self._kernels.KVPages(
            pages, shape.query_heads, shape.kv_heads, shape.head_size, group.block_tokens
        )


class NativeStep:
    """`AttentionStep` of one step."""

    def __init__(
        self,
        pages: Sequence[interface.KVPages],
        shapes: Sequence[AttentionShape],
        batches: Sequence[interface.StepBatch],
    ) -> None:
        self._pages = pages
        self._shapes = shapes
        self._batches = batches

    def attend(self, layer: int, qkv: Tensor, rotation: Rotation) -> Tensor:
        shape = self._shapes[layer]
        query_norm, key_norm = rotation.query_norm, rotation.key_norm
        return self._pages[layer].attend(
            self._batches[layer],
            qkv,
            rotation.table.cosine,
            rotation.table.sine,
            query_norm=None if query_norm is None else query_norm.weight,
            key_norm=None if key_norm is None else key_norm.weight,
            norm_eps=0.0 if query_norm is None else query_norm.eps,
            scale=shape.scale,
            window=shape.window_tokens or 0,
        )
