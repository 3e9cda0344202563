"""The reference implementation of `Matrix`: plain PyTorch, any device, float32 or bfloat16."""

import torch
from torch import Tensor
from torch.nn import functional

from steelyard.models.ops.matrix import Norm

__all__ = ["TorchMatrix", "rms_norm"]


class TorchMatrix:
    """Multiplies in the dtype of its weights; results are float32."""

    def __init__(self, weight: Tensor, bias: Tensor | None = None) -> None:
        self._weight = weight
        self._bias = None if bias is None else bias.to(weight.dtype)

    @property
    def outputs(self) -> int:
        return self._weight.shape[0]

    @property
    def bytes(self) -> int:
        return self._weight.nbytes

    def linear(self, x: Tensor, norm: Norm | None = None) -> Tensor:
        if norm is not None:
            x = rms_norm(x, norm)
        return functional.linear(x.to(self._weight.dtype), self._weight, self._bias).float()

    def linear_add(self, x: Tensor, out: Tensor) -> None:
        out += self.linear(x)

    def linear_gate(self, x: Tensor, norm: Norm | None = None) -> Tensor:
        gate, up = self.linear(x, norm).chunk(2, dim=-1)
        return functional.silu(gate) * up

    def rows(self, ids: Tensor) -> Tensor:
        return self._weight[ids].float()


def rms_norm(x: Tensor, norm: Norm) -> Tensor:
    """Normalise the last dimension of a float32 tensor."""
    return x * torch.rsqrt(x.square().mean(-1, keepdim=True) + norm.eps) * norm.weight
