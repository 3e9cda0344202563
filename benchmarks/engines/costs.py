"""What one decode step must read and compute, and how fast this machine could do it at best.

    bytes per step   all weights of the layers and of the head once, and the keys and values of
                     every sequence's context
    operations       two per weight and sequence, and four per query element and token of context
    tokens/s at best batch / max(bytes / bandwidth, operations / rate of dot products)

The embedding is only looked up. Attention's operations are charged at bf16's rate, or float32's
where keys and values are float32. Activations, sampling and everything that is not a matrix are
left out: this bounds from above.
"""

from dataclasses import dataclass

from benchmarks.engines.engine import WeightBits
from benchmarks.engines.roofline import Roofline

from steelyard.checkpoints import Checkpoint

__all__ = ["ModelSize", "best_tokens_per_s", "size_of"]


@dataclass(frozen=True, slots=True)
class ModelSize:
    """Numbers of weights and elements."""

    layer_weights: int
    head_weights: int
    kv_elements: int
    """Per token, all layers: keys and values."""
    query_elements: int
    """Per token, all layers."""


def size_of(checkpoint: Checkpoint) -> ModelSize:
    """From the tensors' shapes; the head counts whether or not it is the embedding too."""
    config = checkpoint.config
    layers = sum(
        entry.shape[0] * entry.shape[1]
        for name, entry in checkpoint.tensors.items()
        if ".layers." in name and len(entry.shape) == 2
    )
    heads = config.num_hidden_layers * config.head_dim
    return ModelSize(
        layer_weights=layers,
        head_weights=config.vocab_size * config.hidden_size,
        kv_elements=2 * heads * config.num_key_value_heads,
        query_elements=heads * config.num_attention_heads,
    )


def best_tokens_per_s(
    size: ModelSize, bits: WeightBits, roofline: Roofline, *, batch: int, context_tokens: float
) -> float:
    """The bound for `batch` sequences of `context_tokens` each."""
    weight_bytes = (size.layer_weights * bits.layers + size.head_weights * bits.head) / 8
    kv_bytes = batch * context_tokens * size.kv_elements * bits.kv_bytes
    read_s = (weight_bytes + kv_bytes) / roofline.bytes_per_s
    weight_operations = 2 * batch * (size.layer_weights + size.head_weights)
    attention_operations = 4 * batch * context_tokens * size.query_elements
    compute_s = weight_operations / roofline.operations_per_s(bits.dot)
    compute_s += attention_operations / roofline.operations_per_s(
        "fp32" if bits.kv_bytes == 4 else "bf16"
    )
    return batch / max(read_s, compute_s)
