"""A weight matrix between the checkpoint and the kernels: dense, or quantised in blocks of 32.

Block quantisation is kept as stored, because a file that was quantised to four bits loses nothing
when the kernels multiply those same four bits.

    Blocks8   weight = scale * value                  value in [-127, 127]
    Blocks4   weight = scale * value + minimum        value in [0, 15]
"""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

__all__ = ["BLOCK", "Blocks4", "Blocks8", "Dense", "Source", "concatenate"]

BLOCK = 32
"""Values of a row that share a scale."""


@dataclass(frozen=True, slots=True)
class Dense:
    """Plain numbers."""

    values: Tensor
    """[outputs, width], float32, float16 or bfloat16."""

    @property
    def outputs(self) -> int:
        return self.values.shape[0]

    @property
    def width(self) -> int:
        return self.values.shape[1]

    def dense(self) -> Tensor:
        """float32 [outputs, width]."""
        return self.values.float()

    def take(self, rows: Tensor) -> "Dense":
        """The rows in another order."""
        return Dense(self.values[rows])


@dataclass(frozen=True, slots=True)
class Blocks8:
    """Eight bits per weight and one scale per block."""

    values: Tensor
    """int8 [outputs, width]."""
    scale: Tensor
    """float16 [outputs, width / 32]."""

    @property
    def outputs(self) -> int:
        return self.values.shape[0]

    @property
    def width(self) -> int:
        return self.values.shape[1]

    def dense(self) -> Tensor:
        """float32 [outputs, width]."""
        blocks = self.values.view(self.outputs, -1, BLOCK).float()
        return (blocks * self.scale.float()[..., None]).view(self.outputs, self.width)

    def take(self, rows: Tensor) -> "Blocks8":
        """The rows in another order."""
        return Blocks8(self.values[rows], self.scale[rows])


@dataclass(frozen=True, slots=True)
class Blocks4:
    """Four bits per weight, one scale and one minimum per block."""

    values: Tensor
    """uint8 [outputs, width], one weight per byte."""
    scale: Tensor
    """float16 [outputs, width / 32]."""
    minimum: Tensor
    """float16 [outputs, width / 32]."""

    @property
    def outputs(self) -> int:
        return self.values.shape[0]

    @property
    def width(self) -> int:
        return self.values.shape[1]

    def dense(self) -> Tensor:
        """float32 [outputs, width]."""
        blocks = self.values.view(self.outputs, -1, BLOCK).float()
        weights = blocks * self.scale.float()[..., None] + self.minimum.float()[..., None]
        return weights.view(self.outputs, self.width)

    def take(self, rows: Tensor) -> "Blocks4":
        """The rows in another order."""
        return Blocks4(self.values[rows], self.scale[rows], self.minimum[rows])


Source = Dense | Blocks8 | Blocks4


def concatenate(sources: Sequence[Source]) -> Source:
    """Stack matrices of equal width. Sources of different kinds become dense float32."""
    if all(isinstance(source, Blocks4) for source in sources):
        fours = [source for source in sources if isinstance(source, Blocks4)]
        return Blocks4(
            torch.cat([source.values for source in fours]),
            torch.cat([source.scale for source in fours]),
            torch.cat([source.minimum for source in fours]),
        )
    if all(isinstance(source, Blocks8) for source in sources):
        eights = [source for source in sources if isinstance(source, Blocks8)]
        return Blocks8(
            torch.cat([source.values for source in eights]),
            torch.cat([source.scale for source in eights]),
        )
    denses = [source for source in sources if isinstance(source, Dense)]
    if len(denses) == len(sources) and len({source.values.dtype for source in denses}) == 1:
        return Dense(torch.cat([source.values for source in denses]))
    return Dense(torch.cat([source.dense() for source in sources]))
