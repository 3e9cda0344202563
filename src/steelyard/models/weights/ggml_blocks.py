"""Decodes the GGML block types that GGUF files store (layouts: ggml-common.h of ggml-org/ggml).

    Q4_0   f16 d | 16 bytes             weight = d * (q - 8)
    Q4_1   f16 d, f16 m | 16 bytes      weight = d * q + m
    Q8_0   f16 d | 32 signed bytes      weight = d * q

A block holds 32 values of a row; of Q4's byte i, the low nibble is value i, the high one i + 16.
"""

import torch
from torch import Tensor

from steelyard.models.weights.source import BLOCK, Blocks4, Blocks8, Source

__all__ = ["BLOCK_BYTES", "decode_blocks"]

BLOCK_BYTES = {"Q4_0": 18, "Q4_1": 20, "Q8_0": 34}


def decode_blocks(kind: str, data: Tensor, shape: tuple[int, ...]) -> Source:
    """Decode `data` (uint8, flat) of a matrix of `shape`; `kind` is a key of `BLOCK_BYTES`."""
    outputs, width = shape
    blocks = data.view(outputs, width // BLOCK, BLOCK_BYTES[kind])
    scale = blocks[..., :2].contiguous().view(torch.float16).squeeze(-1)
    match kind:
        case "Q4_0":
            # d * (q - 8) = d * q + m with m = -8 d, exact in half precision.
            return Blocks4(_nibbles(blocks[..., 2:], shape), scale, scale * -8)
        case "Q4_1":
            minimum = blocks[..., 2:4].contiguous().view(torch.float16).squeeze(-1)
            return Blocks4(_nibbles(blocks[..., 4:], shape), scale, minimum)
        case _:
            values = blocks[..., 2:].contiguous().view(torch.int8).view(outputs, width)
            return Blocks8(values, scale)


def _nibbles(packed: Tensor, shape: tuple[int, ...]) -> Tensor:
    """uint8 [outputs, blocks, 16] to one value per byte, [outputs, width]."""
    return torch.cat((packed & 15, packed >> 4), dim=-1).view(shape)
