"""Builds a model from a checkpoint. Families are imported on use.

A new family is one file with `build(parts)` and one line here.
"""

import importlib
from collections.abc import Callable
from typing import Final, cast

from steelyard.contract.errors import CheckpointError
from steelyard.models.families.parts import ModelParts
from steelyard.models.layers.decoder import Decoder

__all__ = ["FAMILIES", "build_model"]

FAMILIES: Final = {
    "llama": "steelyard.models.families.llama",
    "qwen3": "steelyard.models.families.qwen3",
}
"""`model_type` of a configuration (or `general.architecture` of a GGUF file) → module."""


def build_model(architecture: str, parts: ModelParts) -> Decoder:
    """Load all weights. Raises `CheckpointError` for an unknown architecture."""
    if architecture not in FAMILIES:
        raise CheckpointError(
            f"the architecture {architecture!r} is not supported",
            param="model",
            fix=f"serve one of: {', '.join(sorted(FAMILIES))}",
        )
    module = importlib.import_module(FAMILIES[architecture])
    build = cast(Callable[[ModelParts], Decoder], module.build)
    return build(parts)
