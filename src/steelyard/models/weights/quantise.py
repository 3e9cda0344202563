"""Makes smaller weights: round to nearest, per block of 32 values of a row.

Scales are rounded to half precision before the values are, so that the values fit the scales that
the kernels will use.
"""

import torch
from torch import Tensor

from steelyard.models.weights.source import BLOCK, Blocks4, Blocks8, Dense, Source

__all__ = ["to_blocks4", "to_blocks8", "to_dense"]

_TINY = 1e-7
"""Keeps the division defined where a block is constant; half precision's smallest is 6e-8."""


def to_dense(source: Source, dtype: torch.dtype) -> Dense:
    """Plain numbers in `dtype`."""
    if isinstance(source, Dense):
        return Dense(source.values.to(dtype))
    return Dense(source.dense().to(dtype))


def to_blocks8(source: Source) -> Blocks8:
    """Symmetric eight bits: scale = max |w| / 127."""
    if isinstance(source, Blocks8):
        return source
    blocks = _blocks(source)
    scale = (blocks.abs().amax(-1) / 127).to(torch.float16)
    values = (blocks / scale.float().clamp_min(_TINY)[..., None]).round().clamp(-127, 127)
    return Blocks8(values.to(torch.int8).view(source.outputs, source.width), scale)


def to_blocks4(source: Source) -> Blocks4:
    """Asymmetric four bits: minimum = min w, scale = (max w - min w) / 15."""
    if isinstance(source, Blocks4):
        return source
    blocks = _blocks(source)
    minimum = blocks.amin(-1).to(torch.float16)
    scale = ((blocks.amax(-1) - minimum.float()) / 15).to(torch.float16)
    steps = (blocks - minimum.float()[..., None]) / scale.float().clamp_min(_TINY)[..., None]
    values = steps.round().clamp(0, 15).to(torch.uint8)
    return Blocks4(values.view(source.outputs, source.width), scale, minimum)


def _blocks(source: Source) -> Tensor:
    """float32 [outputs, blocks, 32]."""
    return source.dense().view(source.outputs, -1, BLOCK)
