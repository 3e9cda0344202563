"""Chooses how each weight matrix is stored and multiplied: precision, device, kernels.

    precision   layers      embedding and head
    fp32        float32     float32
    bf16        bfloat16    bfloat16
    int8        8 bits      8 bits
    int4        4 bits      8 bits

A matrix whose width is no multiple of 32 stays dense in bfloat16.
"""

from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from steelyard.models.native.interface import NativeKernels
from steelyard.models.ops.matrix import Embedding, Matrix
from steelyard.models.ops.native_matrix import pack_native
from steelyard.models.ops.packed_matrix import PackedInt4Matrix, PackedInt8Matrix
from steelyard.models.ops.torch_matrix import TorchMatrix
from steelyard.models.weights.quantise import to_blocks4, to_blocks8, to_dense
from steelyard.models.weights.source import BLOCK, Blocks4, Source

__all__ = ["MatrixMaker", "Precision", "choose_precision"]

Precision = Literal["fp32", "bf16", "int8", "int4"]


def choose_precision(kinds: set[str], *, device: str, native: NativeKernels | None) -> Precision:
    """What `auto` means: the fastest that keeps the model's quality.

    `kinds` are the storage types of the checkpoint's layer matrices. Weights that were stored with
    four bits lose nothing in the four-bit kernels; rounding others to four bits would, so those
    get eight (docs/precision.md). Without fast integer kernels bf16 is the fastest.
    """
    if device != "cpu" or native is None or not native.fast_dot_int8:
        return "bf16"
    return "int4" if kinds and kinds <= {"Q4_0", "Q4_1"} else "int8"


@dataclass(frozen=True, slots=True)
class MatrixMaker:
    """Makes the matrices of one model."""

    precision: Precision
    device: torch.device
    native: NativeKernels | None
    """None: no compiled kernels, or not on a CPU."""

    def layer(self, source: Source, bias: Tensor | None = None, *, gated: bool = False) -> Matrix:
        """A matrix of a decoder layer. `gated`: the first half of the rows gates the second."""
        if self.precision == "int4" and source.width % BLOCK == 0:
            return self._four_bits(to_blocks4(source), bias, gated)
        return self._make(source, bias, gated)

    def embedding(self, source: Source) -> Embedding:
        """The embedding, or the head."""
        return self._make(source, None, gated=False)

    def _four_bits(self, source: Blocks4, bias: Tensor | None, gated: bool) -> Matrix:
        if self.native is not None and self.native.fast_dot_int8:
            return pack_native(self.native, source, bias, gated=gated)
        return PackedInt4Matrix(source, bias)

    def _make(self, source: Source, bias: Tensor | None, gated: bool) -> Embedding:
        narrow = source.width % BLOCK != 0
        if self.precision == "fp32":
            return self._dense(source, bias, torch.float32)
        if self.precision == "bf16" or narrow:
            if self.native is not None and self.native.fast_dot_bf16 and not narrow:
                return pack_native(self.native, to_dense(source, torch.bfloat16), bias, gated=gated)
            return self._dense(source, bias, torch.bfloat16)
        if self.native is not None and self.native.fast_dot_int8:
            return pack_native(self.native, to_blocks8(source), bias, gated=gated)
        return PackedInt8Matrix(source, bias)

    def _dense(self, source: Source, bias: Tensor | None, dtype: torch.dtype) -> TorchMatrix:
        values = to_dense(source, dtype).values.to(self.device).contiguous()
        return TorchMatrix(values, None if bias is None else bias.to(self.device))
