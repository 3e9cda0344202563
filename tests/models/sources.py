"""Random weight matrices of every kind, for tests."""

import torch

from steelyard.models.weights.quantise import to_blocks4, to_blocks8
from steelyard.models.weights.source import Dense, Source

KINDS = ("bf16", "int8", "int4")


def random_source(kind: str, outputs: int, width: int, seed: int = 0) -> Source:
    """Normally distributed weights, stored as `kind`."""
    generator = torch.Generator().manual_seed(seed)
    dense = Dense(torch.randn(outputs, width, generator=generator))
    match kind:
        case "bf16":
            return Dense(dense.values.to(torch.bfloat16))
        case "int8":
            return to_blocks8(dense)
        case _:
            return to_blocks4(dense)


def random_rows(rows: int, width: int, seed: int = 1) -> torch.Tensor:
    """Activations with a few outliers, as real ones have."""
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(rows, width, generator=generator)
    x[:, :: max(width // 3, 1)] *= 20
    return x
