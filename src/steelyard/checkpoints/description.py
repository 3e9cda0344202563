"""The words for a model on disk: what it is, where its tensors lie, what its text side needs.

Data only. Reading files is done by `gguf_file`, `safetensors_files` and `hf_config`; `checkpoint`
puts the parts together; turning bytes into tensors belongs to `models`, into tokens to `text`.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from steelyard.checkpoints.gguf_vocabulary import GGUFVocabulary

__all__ = [
    "Checkpoint",
    "ModelDescription",
    "SpecialTokens",
    "TensorEntry",
    "TokenizerFile",
]


@dataclass(frozen=True, slots=True)
class TensorEntry:
    """Where one tensor lies; its bytes are [offset, offset + nbytes) of `file`."""

    name: str
    """As in the Hugging Face checkpoint of the architecture, whatever the file calls it."""
    dtype: str
    """`F32`, `F16`, `BF16`, other safetensors dtypes, or a GGML block type such as `Q4_1`."""
    shape: tuple[int, ...]
    """Row-major, as Hugging Face has it: a linear layer is (out features, in features)."""
    file: Path
    offset: int
    nbytes: int


@dataclass(frozen=True, slots=True)
class SpecialTokens:
    """Texts of the tokens that chat templates name; None where the model has none."""

    bos: str | None = None
    eos: str | None = None
    pad: str | None = None
    unk: str | None = None


@dataclass(frozen=True, slots=True)
class TokenizerFile:
    """A `tokenizer.json` of the Hugging Face `tokenizers` library."""

    path: Path


@dataclass(frozen=True, slots=True)
class ModelDescription:
    """The model's dimensions under their Hugging Face names, checked to be consistent.

    Everything else the configuration holds stays in `raw`, for the family file that knows it.
    """

    hidden_size: int
    num_hidden_layers: int
    num_attention_heads: int
    num_key_value_heads: int
    head_dim: int
    intermediate_size: int
    vocab_size: int
    """Rows of the embedding; may exceed the tokenizer's count."""
    max_position_embeddings: int
    rms_norm_eps: float
    rope_theta: float
    rope_scaling: Mapping[str, Any] | None
    """With its `rope_type`; None means plain rotary embedding. A reader must refuse types it does
    not know. GGUF files may carry `{"rope_type": "gguf_factors"}`: see `gguf_names`."""
    tie_word_embeddings: bool
    sliding_window: int | None
    """Tokens a query may look back on, itself included; None means all."""
    bos_token_id: int | None
    eos_token_ids: tuple[int, ...]
    """Tokens that end a stream: those of the generation config, else of the model's."""
    raw: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """A model on disk, described; holds no open file."""

    name: str
    path: Path
    """The GGUF file, or the directory of safetensors files."""
    format: Literal["gguf", "safetensors"]
    architecture: str
    """`llama`, `qwen3`, …: `model_type` of the configuration, `general.architecture` of a GGUF."""
    config: ModelDescription
    tensors: Mapping[str, TensorEntry]
    qk_rows_permuted: bool
    """True when rows of q_proj and k_proj (weights and biases) are ordered for interleaved rotary
    pairs (x0, x1), (x2, x3), …, as llama.cpp stores Llama models. Hugging Face pairs x[i] with
    x[i + head_dim/2]; whoever loads the tensors as such must undo it, per head:

        rows.reshape(heads, head_dim // 2, 2, columns).swapaxes(1, 2).reshape(rows.shape)
    """
    vocabulary: TokenizerFile | GGUFVocabulary
    chat_template: str | None
    """Jinja source; None when the model has none (a base model)."""
    special_tokens: SpecialTokens

    @property
    def files(self) -> tuple[Path, ...]:
        """The weight files, sorted."""
        return tuple(sorted({entry.file for entry in self.tensors.values()}))

    @property
    def weight_bytes(self) -> int:
        """Bytes of all tensors as stored."""
        return sum(entry.nbytes for entry in self.tensors.values())
