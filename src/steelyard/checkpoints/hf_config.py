"""Turns a Hugging Face configuration into a checked `ModelDescription`.

Works on dictionaries, whether they come from `config.json` or from a GGUF file. Refuses remote
code. What a family makes of further keys (`raw`) is decided in `models`.
"""

import math
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

from steelyard.checkpoints._reading import damaged
from steelyard.checkpoints.description import ModelDescription
from steelyard.contract.errors import CheckpointError

__all__ = ["describe_model", "refuse_remote_code"]

_MAX_COUNT = 1 << 31


def describe_model(
    raw: Mapping[str, Any],
    *,
    generation: Mapping[str, Any],
    has_output_matrix: bool,
    where: Path,
) -> ModelDescription:
    """Normalise and check. `generation` is the generation config, empty when there is none.

    `has_output_matrix` decides whether embeddings are tied when the configuration does not say.
    Raises `CheckpointError` naming `where` and the key at fault.
    """
    read = _Reader(raw, where)
    heads = read.count("num_attention_heads")
    hidden_size = read.count("hidden_size")
    key_value_heads = read.count("num_key_value_heads", heads)
    head_dim = read.count("head_dim", max(hidden_size // heads, 1))
    if heads % key_value_heads:
        raise damaged(where, f"{heads} attention heads do not share {key_value_heads} KV heads")
    rope = _rope(raw, where)
    tied = raw.get("tie_word_embeddings")
    return ModelDescription(
        hidden_size=hidden_size,
        num_hidden_layers=read.count("num_hidden_layers"),
        num_attention_heads=heads,
        num_key_value_heads=key_value_heads,
        head_dim=head_dim,
        intermediate_size=read.count("intermediate_size"),
        vocab_size=read.count("vocab_size"),
        max_position_embeddings=read.count("max_position_embeddings"),
        rms_norm_eps=read.positive("rms_norm_eps", 1e-6),
        rope_theta=_Reader(rope or raw, where).positive(
            "rope_theta", read.positive("rope_theta", 1e4)
        ),
        rope_scaling=_rope_scaling(rope),
        tie_word_embeddings=not has_output_matrix if tied is None else bool(tied),
        sliding_window=_sliding_window(read),
        bos_token_id=next(iter(_token_ids(read, generation, "bos_token_id")), None),
        eos_token_ids=_token_ids(read, generation, "eos_token_id"),
        raw=MappingProxyType(dict(raw)),
    )


def refuse_remote_code(raw: Mapping[str, Any], where: Path) -> None:
    """Steelyard runs its own code only; a configuration that asks for other code is refused."""
    if raw.get("auto_map"):
        raise CheckpointError(
            "asks for Python code from the model's repository (auto_map), which is never run",
            param=str(where),
            fix="if the model is of a family that Steelyard knows, remove `auto_map` from the file",
        )


class _Reader:
    """Reads numbers under their bounds; errors name the file and the key."""

    def __init__(self, raw: Mapping[str, Any], where: Path) -> None:
        self.raw = raw
        self.where = where

    def count(self, key: str, default: int | None = None) -> int:
        """A whole number ≥ 1."""
        value = self.raw.get(key)
        value = default if value is None else value
        if value is None:
            raise damaged(self.where, f"{key} is missing")
        if not isinstance(value, int) or isinstance(value, bool) or not 1 <= value < _MAX_COUNT:
            raise damaged(self.where, f"{key} is {value!r}, not a whole number from 1")
        return value

    def positive(self, key: str, default: float) -> float:
        """A finite number > 0."""
        value = self.raw.get(key)
        value = default if value is None else value
        is_number = isinstance(value, int | float) and not isinstance(value, bool)
        if not is_number or not 0 < value < math.inf:
            raise damaged(self.where, f"{key} is {value!r}, not a positive number")
        return float(value)


def _rope(raw: Mapping[str, Any], where: Path) -> Mapping[str, Any] | None:
    """`rope_parameters` (transformers ≥ 5) or `rope_scaling` (before), as far as one is set."""
    for key in ("rope_parameters", "rope_scaling"):
        value = raw.get(key)
        if value is not None and not isinstance(value, dict):
            raise damaged(where, f"{key} is {value!r}, not an object")
        if value:
            return value
    return None


def _rope_scaling(rope: Mapping[str, Any] | None) -> Mapping[str, Any] | None:
    if rope is None:
        return None
    if any(isinstance(value, dict) for value in rope.values()):
        return MappingProxyType({**rope, "rope_type": "per_layer_type"})
    kind = rope.get("rope_type", rope.get("type", "default"))
    if kind == "default":
        return None
    scaling = {key: value for key, value in rope.items() if key not in ("type", "rope_theta")}
    return MappingProxyType({**scaling, "rope_type": kind})


def _sliding_window(read: _Reader) -> int | None:
    if read.raw.get("sliding_window") is None or read.raw.get("use_sliding_window") is False:
        return None
    return read.count("sliding_window")


def _token_ids(read: _Reader, generation: Mapping[str, Any], key: str) -> tuple[int, ...]:
    """One id or a list of ids; the generation config goes before the model's."""
    value = generation.get(key)
    value = read.raw.get(key) if value is None else value
    if value is None:
        return ()
    ids = value if isinstance(value, list) else [value]
    for token_id in ids:
        is_whole = isinstance(token_id, int) and not isinstance(token_id, bool)
        if not is_whole or not 0 <= token_id < _MAX_COUNT:
            raise damaged(read.where, f"{key} is {value!r}, not token ids")
    return tuple(ids)
