"""Tiny models on disk, sound until a test damages them."""

import json
import struct
from pathlib import Path
from typing import Any

import gguf
import numpy as np

LAYERS = 2
HIDDEN = 64
HEADS = 4
KV_HEADS = 2
HEAD_DIM = 16
INNER = 96
CONTEXT = 128

BYTES = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]


def byte_alphabet() -> dict[int, str]:
    """GPT-2's spelling of every byte, worked out independently of the code under test."""
    letters = {byte: chr(byte) for byte in BYTES}
    extra = 0x100
    for byte in range(0x100):
        if byte not in letters:
            letters[byte] = chr(extra)
            extra += 1
    return letters


def spelled(text: str) -> str:
    """`text` as byte-level vocabularies write it."""
    return "".join(byte_alphabet()[byte] for byte in text.encode())


CONTROL_TOKENS = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]
USER_TOKENS = ["<think>"]


def tiny_vocabulary() -> tuple[list[str], list[tuple[str, str]]]:
    """Tokens and merges: three control tokens, every byte, some words."""
    tokens = [*CONTROL_TOKENS, *USER_TOKENS, *byte_alphabet().values()]
    merges = []
    for word in ("he", "ll", "hell", "hello", " w", " wo", " wor", " worl", " world", "12", "\n\n"):
        for cut in range(1, len(word)):
            left, right = spelled(word[:cut]), spelled(word[cut:])
            if left in tokens and right in tokens:
                merges.append((left, right))
                tokens.append(spelled(word))
                break
    return tokens, merges


def token_types(tokens: list[str]) -> list[int]:
    """GGUF's kinds: 3 control, 4 user-defined, 1 normal."""
    return [3 if t in CONTROL_TOKENS else 4 if t in USER_TOKENS else 1 for t in tokens]


CHAT_TEMPLATE = (
    "{% for message in messages %}<|im_start|>{{ message.role }}\n{{ message.content }}<|im_end|>\n"
    "{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)


def write_gguf(
    path: Path,
    *,
    architecture: str = "llama",
    fields: dict[str, Any] | None = None,
    with_output: bool = False,
    quantised: bool = True,
) -> Path:
    """A complete tiny model. `fields` replaces or (with None) removes metadata."""
    writer = gguf.GGUFWriter(path, architecture)
    tokens, merges = tiny_vocabulary()
    values: dict[str, Any] = {
        "general.name": "tiny",
        f"{architecture}.context_length": CONTEXT,
        f"{architecture}.embedding_length": HIDDEN,
        f"{architecture}.block_count": LAYERS,
        f"{architecture}.feed_forward_length": INNER,
        f"{architecture}.attention.head_count": HEADS,
        f"{architecture}.attention.head_count_kv": KV_HEADS,
        f"{architecture}.attention.layer_norm_rms_epsilon": 1e-5,
        f"{architecture}.rope.freq_base": 10000.0,
        f"{architecture}.rope.dimension_count": HEAD_DIM,
        "tokenizer.ggml.model": "gpt2",
        "tokenizer.ggml.pre": "smollm",
        "tokenizer.ggml.tokens": tokens,
        "tokenizer.ggml.token_type": token_types(tokens),
        "tokenizer.ggml.merges": [" ".join(merge) for merge in merges],
        "tokenizer.ggml.bos_token_id": 1,
        "tokenizer.ggml.eos_token_id": 2,
        "tokenizer.ggml.add_bos_token": False,
        "tokenizer.chat_template": CHAT_TEMPLATE,
    }
    values.update(fields or {})
    for key, value in values.items():
        _add_field(writer, key, value)
    for name, shape in gguf_shapes(len(tokens), with_output).items():
        _add_tensor(writer, name, shape, quantised and len(shape) == 2)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def gguf_shapes(vocab_size: int, with_output: bool) -> dict[str, tuple[int, ...]]:
    """Row-major shapes under GGUF's names."""
    shapes: dict[str, tuple[int, ...]] = {"token_embd.weight": (vocab_size, HIDDEN)}
    for layer in range(LAYERS):
        shapes |= {
            f"blk.{layer}.attn_norm.weight": (HIDDEN,),
            f"blk.{layer}.attn_q.weight": (HEADS * HEAD_DIM, HIDDEN),
            f"blk.{layer}.attn_k.weight": (KV_HEADS * HEAD_DIM, HIDDEN),
            f"blk.{layer}.attn_v.weight": (KV_HEADS * HEAD_DIM, HIDDEN),
            f"blk.{layer}.attn_output.weight": (HIDDEN, HEADS * HEAD_DIM),
            f"blk.{layer}.ffn_norm.weight": (HIDDEN,),
            f"blk.{layer}.ffn_gate.weight": (INNER, HIDDEN),
            f"blk.{layer}.ffn_up.weight": (INNER, HIDDEN),
            f"blk.{layer}.ffn_down.weight": (HIDDEN, INNER),
        }
    shapes["output_norm.weight"] = (HIDDEN,)
    if with_output:
        shapes["output.weight"] = (vocab_size, HIDDEN)
    return shapes


def tiny_config(**changes: Any) -> dict[str, Any]:
    """A `config.json`."""
    return {
        "model_type": "llama",
        "architectures": ["LlamaForCausalLM"],
        "hidden_size": HIDDEN,
        "intermediate_size": INNER,
        "num_hidden_layers": LAYERS,
        "num_attention_heads": HEADS,
        "num_key_value_heads": KV_HEADS,
        "max_position_embeddings": CONTEXT,
        "vocab_size": 300,
        "rms_norm_eps": 1e-5,
        "rope_theta": 10000.0,
        "tie_word_embeddings": True,
        "bos_token_id": 1,
        "eos_token_id": 2,
    } | changes


def safetensors_bytes(
    tensors: dict[str, tuple[str, list[int], bytes]], header: dict[str, Any] | None = None
) -> bytes:
    """A file of the format, written by hand; `header` replaces the honest one."""
    described: dict[str, Any] = {}
    at = 0
    for name, (dtype, shape, data) in tensors.items():
        described[name] = {"dtype": dtype, "shape": shape, "data_offsets": [at, at + len(data)]}
        at += len(data)
    body = json.dumps(described if header is None else header).encode()
    return struct.pack("<Q", len(body)) + body + b"".join(data for _, _, data in tensors.values())


def write_hf_directory(directory: Path, *, shards: int = 1, **config: Any) -> Path:
    """A directory as `save_pretrained` would leave it, with made-up tensors."""
    directory.mkdir(parents=True, exist_ok=True)
    names = ["model.embed_tokens.weight", "model.norm.weight", "model.layers.0.mlp.up_proj.weight"]
    data = np.arange(6, dtype="<f4").tobytes()
    tensors = {name: ("F32", [2, 3], data) for name in names}
    files = {
        name: f"model-{i % shards + 1:05}-of-{shards:05}.safetensors"
        for i, name in enumerate(names)
    }
    if shards == 1:
        (directory / "model.safetensors").write_bytes(safetensors_bytes(tensors))
    else:
        for file in set(files.values()):
            own = {name: tensors[name] for name in names if files[name] == file}
            (directory / file).write_bytes(safetensors_bytes(own))
        index = {"metadata": {}, "weight_map": files}
        (directory / "model.safetensors.index.json").write_text(json.dumps(index))
    (directory / "config.json").write_text(json.dumps(tiny_config(**config)))
    (directory / "tokenizer.json").write_text("{}")
    return directory


def _add_field(writer: gguf.GGUFWriter, key: str, value: Any) -> None:
    match value:
        case None:
            return
        case bool():
            writer.add_bool(key, value)
        case int():
            writer.add_uint32(key, value)
        case float():
            writer.add_float32(key, value)
        case str():
            writer.add_string(key, value)
        case _:
            writer.add_array(key, value)


def _add_tensor(
    writer: gguf.GGUFWriter, name: str, shape: tuple[int, ...], quantised: bool
) -> None:
    values = np.linspace(-1, 1, int(np.prod(shape)), dtype=np.float32).reshape(shape)
    if quantised:
        kind = gguf.GGMLQuantizationType.Q8_0
        writer.add_tensor(name, gguf.quants.quantize(values, kind), raw_dtype=kind)
    else:
        writer.add_tensor(name, values)
