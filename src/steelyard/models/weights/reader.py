"""Reads a checkpoint's tensors by name, straight from the mapped files.

Only the pages of the tensor in hand are touched; nothing is kept. Llama models in GGUF files have
their query and key rows ordered for interleaved rotary pairs; that is undone here, so that every
family sees the Hugging Face order.
"""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from steelyard.checkpoints.description import Checkpoint, TensorEntry
from steelyard.contract.errors import CheckpointError
from steelyard.models.weights.ggml_blocks import BLOCK_BYTES, decode_blocks
from steelyard.models.weights.source import Dense, Source, concatenate

__all__ = ["WeightReader"]

_DENSE_TYPES = {"F32": torch.float32, "F16": torch.float16, "BF16": torch.bfloat16}


class WeightReader:
    """Matrices and vectors of one checkpoint. Raises `CheckpointError` naming the tensor."""

    def __init__(self, checkpoint: Checkpoint) -> None:
        self._checkpoint = checkpoint
        self._maps: dict[Path, np.memmap[tuple[int], np.dtype[np.uint8]]] = {}

    def has(self, name: str) -> bool:
        return name in self._checkpoint.tensors

    def vector(self, name: str) -> Tensor:
        """A one-dimensional tensor as float32, copied."""
        entry = self._entry(name)
        if entry.dtype not in _DENSE_TYPES or len(entry.shape) != 1:
            raise self._unusable(entry, "a vector of numbers is expected")
        values = self._bytes(entry).view(_DENSE_TYPES[entry.dtype]).float().clone()
        return self._in_order(name, Dense(values[:, None])).dense().squeeze(1)

    def matrix(self, name: str) -> Source:
        """A two-dimensional tensor as stored; a view of the file where possible."""
        entry = self._entry(name)
        if len(entry.shape) != 2:
            raise self._unusable(entry, "a matrix is expected")
        data = self._bytes(entry)
        if entry.dtype in BLOCK_BYTES:
            return self._in_order(name, decode_blocks(entry.dtype, data, entry.shape))
        if entry.dtype not in _DENSE_TYPES:
            raise self._unusable(entry, f"{entry.dtype} is not supported")
        return self._in_order(name, Dense(data.view(_DENSE_TYPES[entry.dtype]).view(entry.shape)))

    def matrices(self, names: Sequence[str]) -> Source:
        """Several matrices of equal width, stacked."""
        return concatenate([self.matrix(name) for name in names])

    def _entry(self, name: str) -> TensorEntry:
        try:
            return self._checkpoint.tensors[name]
        except KeyError:
            raise CheckpointError(
                f"the tensor {name!r} is missing",
                param=str(self._checkpoint.path),
                fix="fetch the model again; it may be incomplete or of another architecture",
            ) from None

    def _bytes(self, entry: TensorEntry) -> Tensor:
        mapped = self._maps.get(entry.file)
        if mapped is None:
            # Copy-on-write, because torch refuses read-only memory; nothing here writes.
            mapped = np.memmap(entry.file, dtype=np.uint8, mode="c")
            self._maps[entry.file] = mapped
        part = mapped[entry.offset : entry.offset + entry.nbytes]
        # Elements must be aligned, which safetensors does not promise.
        tensor = torch.frombuffer(part, dtype=torch.uint8) if entry.nbytes else torch.empty(0)
        return tensor if entry.offset % 4 == 0 else tensor.clone()

    def _in_order(self, name: str, source: Source) -> Source:
        """Rows in Hugging Face order: see `Checkpoint.qk_rows_permuted`."""
        if not self._checkpoint.qk_rows_permuted or ".self_attn." not in name:
            return source
        config = self._checkpoint.config
        if ".q_proj." in name:
            heads = config.num_attention_heads
        elif ".k_proj." in name:
            heads = config.num_key_value_heads
        else:
            return source
        order = torch.arange(source.outputs).view(heads, config.head_dim // 2, 2)
        return source.take(order.transpose(1, 2).reshape(-1))

    def _unusable(self, entry: TensorEntry, reason: str) -> CheckpointError:
        return CheckpointError(
            f"the tensor {entry.name!r} ({entry.dtype}, shape {entry.shape}) cannot be used: "
            f"{reason}",
            param=str(entry.file),
        )
