"""Rotary position embedding (Su et al. 2021): tables of cosines and sines per position.

Pairs are (x[i], x[i + head_size / 2]), as Hugging Face has them.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from steelyard.contract.errors import CheckpointError

__all__ = ["RotaryTable", "build_rotary", "rotate"]


@dataclass(frozen=True, slots=True)
class RotaryTable:
    """float32 [positions, head_size / 2] each."""

    cosine: Tensor
    sine: Tensor


def build_rotary(
    *,
    head_size: int,
    theta: float,
    scaling: Mapping[str, Any] | None,
    positions: int,
    device: torch.device,
    factors: Tensor | None = None,
) -> RotaryTable:
    """Tables for positions [0, positions). Raises `CheckpointError` for unknown scalings.

    `factors` [head_size / 2] divide the frequencies: what GGUF files store of a `llama3` scaling.
    """
    exponents = torch.arange(0, head_size, 2, dtype=torch.int64).float() / head_size
    frequencies = 1.0 / (theta**exponents)
    frequencies = _scale(frequencies, scaling or {}, factors)
    angles = torch.outer(torch.arange(positions).float(), frequencies)
    return RotaryTable(angles.cos().to(device), angles.sin().to(device))


def rotate(x: Tensor, cosine: Tensor, sine: Tensor) -> Tensor:
    """Rotate [..., head_size] by tables [..., head_size / 2] that broadcast against it."""
    first, second = x.chunk(2, dim=-1)
    return torch.cat((first * cosine - second * sine, second * cosine + first * sine), dim=-1)


def _scale(frequencies: Tensor, scaling: Mapping[str, Any], factors: Tensor | None) -> Tensor:
    kind = scaling.get("rope_type", scaling.get("type", "default"))
    match kind:
        case "default":
            return frequencies
        case "linear":
            return frequencies / float(scaling["factor"])
        case "llama3":
            return _scale_llama3(frequencies, scaling)
        case "gguf_factors" if factors is not None:
            return frequencies / factors
        case _:
            raise CheckpointError(
                f"rotary scaling {kind!r} is not supported",
                param="rope_scaling.rope_type",
                fix="use a model with none, linear or llama3 scaling",
            )


def _scale_llama3(frequencies: Tensor, scaling: Mapping[str, Any]) -> Tensor:
    """Llama 3.1: long waves are stretched by `factor`, short ones kept, those between blended."""
    factor = float(scaling["factor"])
    low = float(scaling["low_freq_factor"])
    high = float(scaling["high_freq_factor"])
    context = float(scaling["original_max_position_embeddings"])
    waves = 2 * math.pi / frequencies
    blend = (context / waves - low) / (high - low)
    blended = (1 - blend) * frequencies / factor + blend * frequencies
    scaled = torch.where(waves > context / low, frequencies / factor, frequencies)
    between = (waves <= context / low) & (waves >= context / high)
    return torch.where(between, blended, scaled)
