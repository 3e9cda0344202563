"""The same weights in the formats that the peers read, made from the model's own GGUF file.

    python -m benchmarks.engines.peer_weights MODEL.gguf FOLDER     safetensors in bf16, for vLLM

Safetensors are made through our own reader, which tests compare with transformers; other GGUF
types by llama.cpp's own `llama-quantize`, so each peer gets what its own tools make.
"""

import argparse
import json
import subprocess
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file

from steelyard.checkpoints import Checkpoint, GGUFVocabulary, open_checkpoint
from steelyard.models.weights.reader import WeightReader
from steelyard.text.gguf_tokenizer import build_from_gguf

__all__ = ["requantise", "write_safetensors"]

_COMPLETE = "model.safetensors"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("gguf", type=Path)
    parser.add_argument("folder", type=Path)
    options = parser.parse_args()
    write_safetensors(options.gguf, options.folder)


def write_safetensors(gguf: Path, folder: Path) -> None:
    """A Hugging Face folder of the model in bf16; does nothing where one is complete."""
    if (folder / _COMPLETE).exists():
        return
    checkpoint = open_checkpoint(gguf)
    folder.mkdir(parents=True, exist_ok=True)
    assert isinstance(checkpoint.vocabulary, GGUFVocabulary), "the model must be a GGUF file"
    build_from_gguf(checkpoint.vocabulary).save(str(folder / "tokenizer.json"))
    _write_json(folder / "tokenizer_config.json", _tokenizer_config(checkpoint))
    _write_json(folder / "config.json", _config(checkpoint))
    _write_json(folder / "generation_config.json", _end_tokens(checkpoint))
    # Last and by renaming, because its presence says that all is there.
    partial = folder / f"{_COMPLETE}.partial"
    save_file(_tensors(checkpoint), partial, metadata={"format": "pt"})
    partial.rename(folder / _COMPLETE)


def requantise(quantizer: Path, gguf: Path, target: Path, kind: str) -> None:
    """Write `target` as `kind` (BF16, Q8_0, …); does nothing where it exists."""
    if target.exists():
        return
    target.parent.mkdir(parents=True, exist_ok=True)
    partial = target.with_suffix(".partial")
    command = [str(quantizer), "--allow-requantize", str(gguf), str(partial), kind]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    partial.rename(target)


def _tensors(checkpoint: Checkpoint) -> dict[str, torch.Tensor]:
    reader = WeightReader(checkpoint)
    tensors = {}
    for name, entry in checkpoint.tensors.items():
        values = reader.vector(name) if len(entry.shape) == 1 else reader.matrix(name).dense()
        tensors[name] = values.to(torch.bfloat16).contiguous()
    return tensors


def _config(checkpoint: Checkpoint) -> dict[str, Any]:
    config = checkpoint.config
    assert checkpoint.architecture == "llama" and config.rope_scaling is None, "not written for it"
    return {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "dtype": "bfloat16",
        "hidden_act": "silu",
        "hidden_size": config.hidden_size,
        "intermediate_size": config.intermediate_size,
        "num_hidden_layers": config.num_hidden_layers,
        "num_attention_heads": config.num_attention_heads,
        "num_key_value_heads": config.num_key_value_heads,
        "head_dim": config.head_dim,
        "vocab_size": config.vocab_size,
        "max_position_embeddings": config.max_position_embeddings,
        "rms_norm_eps": config.rms_norm_eps,
        "rope_theta": config.rope_theta,
        "tie_word_embeddings": config.tie_word_embeddings,
        **_end_tokens(checkpoint),
    }


def _end_tokens(checkpoint: Checkpoint) -> dict[str, Any]:
    config = checkpoint.config
    return {"bos_token_id": config.bos_token_id, "eos_token_id": list(config.eos_token_ids)}


def _tokenizer_config(checkpoint: Checkpoint) -> dict[str, Any]:
    tokens = checkpoint.special_tokens
    return {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "bos_token": tokens.bos,
        "eos_token": tokens.eos,
        "pad_token": tokens.pad,
        "unk_token": tokens.unk,
        "clean_up_tokenization_spaces": False,
        "chat_template": checkpoint.chat_template,
    }


def _write_json(path: Path, document: dict[str, Any]) -> None:
    path.write_text(json.dumps(document, indent=2) + "\n")


if __name__ == "__main__":
    main()
