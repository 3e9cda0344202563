"""Types of the compiled module (csrc/bindings.cpp): the code there is the truth.

All tensors are contiguous and on the CPU; activations are float32.
"""

from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

__all__ = ["Indices", "KVPages", "NativeKernels", "PackedMatrix", "StepBatch"]

Indices = NDArray[np.int32]


class PackedMatrix(Protocol):
    """A weight matrix [outputs, width] in the tiles that the kernels read."""

    @property
    def bytes(self) -> int: ...
    @property
    def outputs(self) -> int: ...
    @property
    def width(self) -> int: ...

    def linear(self, x: Tensor, norm: Tensor | None = None, eps: float = 0.0) -> Tensor:
        """[rows, outputs] of rms_norm(x) W^T + bias; no normalisation when `norm` is None."""
        ...

    def linear_add(self, x: Tensor, out: Tensor) -> None:
        """out += x W^T + bias."""
        ...

    def linear_gate(self, x: Tensor, norm: Tensor | None = None, eps: float = 0.0) -> Tensor:
        """[rows, outputs / 2] of silu(gate) * up; rows of W alternate 16 gates and 16 ups."""
        ...

    def rows(self, ids: Tensor) -> Tensor:
        """Rows `ids` (int64) of W as float32."""
        ...


class StepBatch(Protocol):
    """A step's index arrays, checked once and read by every layer."""


class KVPages(Protocol):
    """Keys and values of one layer."""

    def attend(
        self,
        batch: StepBatch,
        qkv: Tensor,
        cosine: Tensor,
        sine: Tensor,
        *,
        query_norm: Tensor | None = None,
        key_norm: Tensor | None = None,
        norm_eps: float = 0.0,
        scale: float = 1.0,
        window: int = 0,
    ) -> Tensor:
        """Rotate, store and attend; `qkv` is overwritten. Returns [tokens, heads * head_size]."""
        ...

    def paged_attention(
        self, batch: StepBatch, queries: Tensor, *, scale: float, window: int = 0
    ) -> tuple[Tensor, Tensor]:
        """Output [tokens, heads, head_size] and log-sum-exp [tokens, heads]."""
        ...


class NativeKernels(Protocol):
    """The module."""

    fast_dot_bf16: bool
    fast_dot_int8: bool
    tile_outputs: int
    group_values: int
    sub_block_tokens: int
    Format: Any

    def set_threads(self, count: int) -> None: ...
    def threads(self) -> int: ...
    def allocate(self, count: int) -> Tensor:
        """`count` zeroed bytes (uint8) on huge pages."""
        ...

    def pack(
        self,
        layout: Any,
        values: Tensor,
        scale: Tensor | None = None,
        minimum: Tensor | None = None,
        bias: Tensor | None = None,
    ) -> PackedMatrix: ...
    def StepBatch(
        self,
        positions: Indices,
        starts: Indices,
        contexts: Indices,
        rows: Indices,
        table: Indices,
        block_tokens: int,
    ) -> StepBatch: ...
    def KVPages(
        self,
        pages: Tensor,
        query_heads: int,
        kv_heads: int,
        head_size: int,
        block_tokens: int,
    ) -> KVPages: ...
