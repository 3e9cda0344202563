"""`Matrix` on torch's own packed integer kernels: what a CPU without a C++ compiler falls back to.

Weights are symmetric per row (8 bits) or asymmetric per block of 32 (4 bits); activations bf16.
"""

import torch
from torch import Tensor
from torch.nn import functional

from steelyard.models.ops.matrix import Norm
from steelyard.models.ops.torch_matrix import rms_norm
from steelyard.models.weights.source import BLOCK, Blocks4, Source

__all__ = ["PackedInt4Matrix", "PackedInt8Matrix"]


class _PackedMatrix:
    """The fused operations in terms of one product."""

    def __init__(self, outputs: int, bias: Tensor | None) -> None:
        self.outputs = outputs
        self._bias = bias

    def _product(self, x: Tensor) -> Tensor:
        """bf16 [rows, width] to bf16 [rows, outputs]."""
        raise NotImplementedError

    def linear(self, x: Tensor, norm: Norm | None = None) -> Tensor:
        if norm is not None:
            x = rms_norm(x, norm)
        result = self._product(x.to(torch.bfloat16)).float()
        return result if self._bias is None else result + self._bias

    def linear_add(self, x: Tensor, out: Tensor) -> None:
        out += self.linear(x)

    def linear_gate(self, x: Tensor, norm: Norm | None = None) -> Tensor:
        gate, up = self.linear(x, norm).chunk(2, dim=-1)
        return functional.silu(gate) * up


class PackedInt8Matrix(_PackedMatrix):
    """`torch._weight_int8pack_mm`: one scale per row."""

    def __init__(self, source: Source, bias: Tensor | None) -> None:
        super().__init__(source.outputs, bias)
        weights = source.dense()
        self._scale = (weights.abs().amax(-1) / 127).clamp_min(1e-12).to(torch.bfloat16)
        steps = weights / self._scale.float()[:, None]
        self._values = steps.round().clamp(-127, 127).to(torch.int8)
        self.bytes = self._values.nbytes + self._scale.nbytes

    def _product(self, x: Tensor) -> Tensor:
        return torch._weight_int8pack_mm(x, self._values, self._scale)

    def rows(self, ids: Tensor) -> Tensor:
        return self._values[ids].float() * self._scale[ids].float()[:, None]


class PackedInt4Matrix(_PackedMatrix):
    """`torch._weight_int4pack_mm_for_cpu`: scale and offset per block of 32."""

    def __init__(self, source: Blocks4, bias: Tensor | None) -> None:
        super().__init__(source.outputs, bias)
        self._values = torch._convert_weight_to_int4pack_for_cpu(source.values.int(), 1)
        # The kernel computes scale * (value - 8) + offset.
        scale = source.scale.float()
        offset = source.minimum.float() + 8 * scale
        self._scale_and_offset = (
            torch.stack((scale, offset), dim=-1).transpose(0, 1).to(torch.bfloat16).contiguous()
        )
        self.bytes = self._values.nbytes + self._scale_and_offset.nbytes

    def _product(self, x: Tensor) -> Tensor:
        return torch._weight_int4pack_mm_for_cpu(x, self._values, BLOCK, self._scale_and_offset)
