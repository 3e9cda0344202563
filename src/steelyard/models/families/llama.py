"""Llama 2 and 3, SmolLM2, and others of `model_type: llama`."""

from steelyard.models.families.parts import ModelParts
from steelyard.models.layers.attention import AttentionShape, Rotation, SelfAttention
from steelyard.models.layers.decoder import Block, Decoder
from steelyard.models.layers.mlp import GatedMLP

__all__ = ["build"]


def build(parts: ModelParts) -> Decoder:
    """The whole model; reports progress per layer."""
    config = parts.config
    rotation = Rotation(parts.rotary())
    embedding, head = parts.embedding_and_head()
    blocks = []
    for layer in range(config.num_hidden_layers):
        parts.report(layer / config.num_hidden_layers, f"layer {layer}")
        blocks.append(_block(parts, layer, rotation))
    shape = AttentionShape(
        query_heads=config.num_attention_heads,
        kv_heads=config.num_key_value_heads,
        head_size=config.head_dim,
        window_tokens=config.sliding_window,
    )
    return Decoder(embedding, blocks, [shape] * len(blocks), parts.norm("model.norm.weight"), head)


def _block(parts: ModelParts, layer: int, rotation: Rotation) -> Block:
    at = f"model.layers.{layer}"
    reader, maker = parts.reader, parts.maker
    projections = [f"{at}.self_attn.{name}_proj.weight" for name in ("q", "k", "v")]
    gate_up = [f"{at}.mlp.{name}_proj.weight" for name in ("gate", "up")]
    return Block(
        SelfAttention(
            layer,
            parts.norm(f"{at}.input_layernorm.weight"),
            maker.layer(reader.matrices(projections)),
            maker.layer(reader.matrix(f"{at}.self_attn.o_proj.weight")),
            rotation,
        ),
        GatedMLP(
            parts.norm(f"{at}.post_attention_layernorm.weight"),
            maker.layer(reader.matrices(gate_up), gated=True),
            maker.layer(reader.matrix(f"{at}.mlp.down_proj.weight")),
        ),
    )
