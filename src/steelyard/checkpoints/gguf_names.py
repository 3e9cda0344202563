"""What GGUF calls things, put into Hugging Face's words: tensor names and the configuration.

Covers the architectures whose tensors these names fully describe; another one is refused rather
than guessed. Adding one means a line in `_QK_ROWS_PERMUTED` and, if it has new tensors, theirs.
Checking the numbers is left to `hf_config`.
"""

import re
import struct
from typing import Any

from steelyard.checkpoints.gguf_file import GGUFFile
from steelyard.contract.errors import CheckpointError

__all__ = ["architecture_of", "hf_config_of", "hf_tensor_name", "qk_rows_permuted"]

ROPE_FACTORS = "rope_freqs.weight"
"""Divisors of the rotary frequencies, stored by llama.cpp in place of Llama 3.1's parameters."""

_QK_ROWS_PERMUTED = {"llama": True, "qwen2": False, "qwen3": False}
"""llama.cpp reorders the rows of q and k for architectures that rotate neighbouring pairs."""

_WHOLE_NAMES = {
    "token_embd.weight": "model.embed_tokens.weight",
    "output_norm.weight": "model.norm.weight",
    "output.weight": "lm_head.weight",
    ROPE_FACTORS: ROPE_FACTORS,
}
_LAYER_PARTS = {
    "attn_norm": "input_layernorm",
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_q_norm": "self_attn.q_norm",
    "attn_k_norm": "self_attn.k_norm",
    "attn_output": "self_attn.o_proj",
    "ffn_norm": "post_attention_layernorm",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
}
_LAYER_NAME = re.compile(r"blk\.(\d{1,6})\.(\w+)\.(weight|bias)")


def architecture_of(file: GGUFFile) -> str:
    """The architecture, which is also the Hugging Face `model_type`; refuses unknown ones."""
    architecture = file.string("general.architecture") or ""
    if architecture not in _QK_ROWS_PERMUTED:
        raise CheckpointError(
            f"GGUF files of the architecture {architecture!r} are not supported",
            param=str(file.path),
            fix=f"use one of {', '.join(_QK_ROWS_PERMUTED)}, or the safetensors of this model",
        )
    if (file.integer("split.count") or 1) > 1:
        raise CheckpointError(
            "this is one part of a split GGUF file",
            param=str(file.path),
            fix="join the parts with `llama-gguf-split --merge`",
        )
    return architecture


def qk_rows_permuted(architecture: str) -> bool:
    """See `Checkpoint.qk_rows_permuted`."""
    return _QK_ROWS_PERMUTED[architecture]


def hf_tensor_name(name: str, file: GGUFFile) -> str:
    """`blk.3.attn_q.weight` → `model.layers.3.self_attn.q_proj.weight`; refuses unknown names."""
    whole = _WHOLE_NAMES.get(name)
    if whole is not None:
        return whole
    match = _LAYER_NAME.fullmatch(name)
    part = _LAYER_PARTS.get(match[2]) if match else None
    if match is None or part is None:
        raise CheckpointError(
            f"the tensor {name!r} is not part of a model that Steelyard knows",
            param=str(file.path),
            fix="use the safetensors of this model",
        )
    return f"model.layers.{int(match[1])}.{part}.{match[3]}"


def hf_config_of(file: GGUFFile, architecture: str) -> dict[str, Any]:
    """The configuration as the model's `config.json` would say it; absent values are left out."""
    heads = file.integer(f"{architecture}.attention.head_count")
    embedding = file.tensors.get("token_embd.weight")
    found = {
        "model_type": architecture,
        "hidden_size": file.integer(f"{architecture}.embedding_length"),
        "num_hidden_layers": file.integer(f"{architecture}.block_count"),
        "num_attention_heads": heads,
        "num_key_value_heads": file.integer(f"{architecture}.attention.head_count_kv") or heads,
        "head_dim": file.integer(f"{architecture}.attention.key_length"),
        "intermediate_size": file.integer(f"{architecture}.feed_forward_length"),
        "vocab_size": embedding.shape[0] if embedding else None,
        "max_position_embeddings": file.integer(f"{architecture}.context_length"),
        "rms_norm_eps": _float32(file, f"{architecture}.attention.layer_norm_rms_epsilon"),
        "rope_theta": _float32(file, f"{architecture}.rope.freq_base"),
        "rope_scaling": _rope_scaling(file, architecture),
        "sliding_window": file.integer(f"{architecture}.attention.sliding_window"),
        "attention_bias": "blk.0.attn_q.bias" in file.tensors,
        "bos_token_id": file.integer("tokenizer.ggml.bos_token_id"),
        "eos_token_id": _end_ids(file),
    }
    config = {key: value for key, value in found.items() if value is not None}
    _refuse_partial_rotation(file, architecture, config)
    return config


def _rope_scaling(file: GGUFFile, architecture: str) -> dict[str, Any] | None:
    if ROPE_FACTORS in file.tensors:
        return {"rope_type": "gguf_factors", "tensor": ROPE_FACTORS}
    kind = file.string(f"{architecture}.rope.scaling.type")
    if kind in (None, "none"):
        return None
    return {
        "rope_type": kind,
        "factor": _float32(file, f"{architecture}.rope.scaling.factor"),
        "original_max_position_embeddings": file.integer(
            f"{architecture}.rope.scaling.original_context_length"
        ),
    }


def _end_ids(file: GGUFFile) -> list[int]:
    """End of sequence, of turn and of message: a chat model may stop with any of them."""
    keys = ("eos", "eot", "eom")
    ids = [file.integer(f"tokenizer.ggml.{key}_token_id") for key in keys]
    return sorted({token_id for token_id in ids if token_id is not None})


def _refuse_partial_rotation(file: GGUFFile, architecture: str, config: dict[str, Any]) -> None:
    rotated = file.integer(f"{architecture}.rope.dimension_count")
    hidden_size, heads = config.get("hidden_size"), config.get("num_attention_heads")
    if rotated is None or not hidden_size or not heads:
        return
    if rotated != config.get("head_dim", hidden_size // heads):
        raise CheckpointError(
            f"only {rotated} dimensions of each head are rotated, which is not supported",
            param=str(file.path),
            fix="use the safetensors of this model",
        )


def _float32(file: GGUFFile, key: str) -> float | None:
    """The shortest decimal that gives the stored float32: 1e-05, not 9.999999747378752e-06."""
    value = file.number(key)
    if value is None:
        return None
    for digits in range(6, 9):
        candidate = float(f"{value:.{digits}g}")
        if struct.pack("<f", candidate) == struct.pack("<f", value):
            return candidate
    return value
