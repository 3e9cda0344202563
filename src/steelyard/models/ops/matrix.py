"""A weight matrix that a decoder layer multiplies with, whatever its precision and device.

The operations are the fused ones that a decoder layer consists of, so that an implementation
decides about rounding, quantising and threading inside one call, and models stay free of it.
Activations between operations are float32 [rows, width] on the matrix's device.
"""

from dataclasses import dataclass
from typing import Protocol

from torch import Tensor

__all__ = ["Embedding", "Matrix", "Norm"]


@dataclass(frozen=True, slots=True)
class Norm:
    """RMS normalisation (Zhang and Sennrich 2019): x / sqrt(mean(x²) + eps) * weight."""

    weight: Tensor
    """float32 [width]."""
    eps: float


class Matrix(Protocol):
    """W [outputs, width], with an optional bias [outputs]."""

    @property
    def outputs(self) -> int: ...

    @property
    def bytes(self) -> int:
        """Memory it takes."""
        ...

    def linear(self, x: Tensor, norm: Norm | None = None) -> Tensor:
        """norm(x) Wᵀ + bias: [rows, outputs]."""
        ...

    def linear_add(self, x: Tensor, out: Tensor) -> None:
        """out += x Wᵀ + bias, in place."""
        ...

    def linear_gate(self, x: Tensor, norm: Norm | None = None) -> Tensor:
        """silu(g) * u of the result's first half g and second half u: [rows, outputs / 2]."""
        ...


class Embedding(Matrix, Protocol):
    """A matrix whose rows can be looked up; it often serves as the output head, too."""

    def rows(self, ids: Tensor) -> Tensor:
        """Rows `ids` (int64 [n]) of W as float32 [n, width]."""
        ...
