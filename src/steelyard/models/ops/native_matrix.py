"""`Matrix` on the compiled CPU kernels: bf16, 8-bit and 4-bit weights in one packed layout each.

Eight- and four-bit weights are multiplied with activations that are quantised to eight bits per
32 values (docs/precision.md has the measured effect).
"""

import torch
from torch import Tensor

from steelyard.models.native.interface import NativeKernels, PackedMatrix
from steelyard.models.ops.matrix import Norm
from steelyard.models.weights.source import Blocks4, Blocks8, Dense, Source

__all__ = ["NativeMatrix", "pack_native"]


class NativeMatrix:
    """Thin: unpacks `Norm` for the kernel."""

    def __init__(self, packed: PackedMatrix) -> None:
        self._packed = packed
        self.outputs = packed.outputs
        self.bytes = packed.bytes

    def linear(self, x: Tensor, norm: Norm | None = None) -> Tensor:
        if norm is None:
            return self._packed.linear(x)
        return self._packed.linear(x, norm.weight, norm.eps)

    def linear_add(self, x: Tensor, out: Tensor) -> None:
        self._packed.linear_add(x, out)

    def linear_gate(self, x: Tensor, norm: Norm | None = None) -> Tensor:
        if norm is None:
            return self._packed.linear_gate(x)
        return self._packed.linear_gate(x, norm.weight, norm.eps)

    def rows(self, ids: Tensor) -> Tensor:
        return self._packed.rows(ids)


def pack_native(
    kernels: NativeKernels, source: Source, bias: Tensor | None, *, gated: bool
) -> NativeMatrix:
    """Pack `source` as it is: dense as bf16, blocks as 8 or 4 bits.

    `gated` says that the first half of the rows are gates and the second half ups, which the
    kernel wants alternating in tiles.
    """
    if gated:
        source = source.take(_interleave(source.outputs, kernels.tile_outputs))
    formats = kernels.Format
    match source:
        case Blocks4():
            packed = kernels.pack(formats.int4, source.values, source.scale, source.minimum, bias)
        case Blocks8():
            packed = kernels.pack(formats.int8, source.values, source.scale, bias=bias)
        case Dense():
            values = source.values.to(torch.bfloat16).contiguous()
            packed = kernels.pack(formats.bf16, values, bias=bias)
    return NativeMatrix(packed)


def _interleave(outputs: int, tile: int) -> Tensor:
    """Row order: half a tile of gates, the half tile of their ups, and so on."""
    order = torch.arange(outputs).view(2, -1, tile // 2)
    return order.transpose(0, 1).reshape(-1)
