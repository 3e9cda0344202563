"""Qwen 3 (dense): Llama's layers with each query and key head normalised before rotation."""

from dataclasses import replace

from steelyard.models.families import llama
from steelyard.models.families.parts import ModelParts
from steelyard.models.layers.attention import Rotation
from steelyard.models.layers.decoder import Block, Decoder

__all__ = ["build"]


def build(parts: ModelParts) -> Decoder:
    """The whole model; reports progress per layer."""
    decoder = llama.build(parts)
    blocks = [_with_head_norms(parts, block) for block in decoder.blocks]
    return replace(decoder, blocks=blocks)


def _with_head_norms(parts: ModelParts, block: Block) -> Block:
    attention = block.attention
    at = f"model.layers.{attention.layer}.self_attn"
    rotation = Rotation(
        attention.rotation.table,
        query_norm=parts.norm(f"{at}.q_norm.weight"),
        key_norm=parts.norm(f"{at}.k_norm.weight"),
    )
    return replace(block, attention=replace(attention, rotation=rotation))
