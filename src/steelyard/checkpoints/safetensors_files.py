"""Reads where tensors lie in safetensors files: one, or several under an index.

Headers are checked against the file's real size before anything is believed; a broken file is
named. The bytes themselves are read by `models`. Format: https://huggingface.co/docs/safetensors
"""

import json
import math
from collections.abc import Mapping
from pathlib import Path, PurePosixPath
from typing import Any, TypeGuard

from steelyard.checkpoints._reading import damaged, opened, read_json
from steelyard.checkpoints.description import TensorEntry
from steelyard.contract.errors import CheckpointError

__all__ = [
    "INDEX_NAME",
    "MAX_HEADER_BYTES",
    "find_safetensors",
    "is_plain_name",
    "read_index",
    "read_tensors",
]

INDEX_NAME = "model.safetensors.index.json"
MAX_HEADER_BYTES = 100_000_000
"""The format's own limit."""
_MAX_INDEX_BYTES = 64 * 1024 * 1024

_DTYPE_BITS = {
    "BOOL": 8,
    "F4": 4,
    "F6_E2M3": 6,
    "F6_E3M2": 6,
    "U8": 8,
    "I8": 8,
    "F8_E4M3": 8,
    "F8_E5M2": 8,
    "F8_E8M0": 8,
    "F8_E4M3FNUZ": 8,
    "F8_E5M2FNUZ": 8,
    "I16": 16,
    "U16": 16,
    "F16": 16,
    "BF16": 16,
    "I32": 32,
    "U32": 32,
    "F32": 32,
    "I64": 64,
    "U64": 64,
    "F64": 64,
    "C64": 64,
}


def find_safetensors(directory: Path) -> list[Path]:
    """The weight files of a directory, from its index or by their names; empty when none is there.

    Raises `CheckpointError` when the index names a missing file, or when there are several files
    and no index that would say how they belong together.
    """
    if (directory / INDEX_NAME).exists():
        return [_present(directory / name) for name in sorted(set(read_index(directory).values()))]
    files = sorted(directory.glob("*.safetensors"))
    if directory / "model.safetensors" in files:
        return [directory / "model.safetensors"]
    if len(files) > 1:
        raise CheckpointError(
            f"{len(files)} safetensors files and no {INDEX_NAME}",
            param=str(directory),
            fix="fetch the model again with its index",
        )
    return files


def read_tensors(directory: Path, files: list[Path]) -> dict[str, TensorEntry]:
    """Every tensor of `files`; with an index, exactly those it lists, each where it says."""
    by_file = {path: _read_header(path) for path in files}
    if (directory / INDEX_NAME).exists():
        return _indexed(directory, by_file)
    tensors: dict[str, TensorEntry] = {}
    for entries in by_file.values():
        tensors.update(entries)
    return tensors


def is_plain_name(name: object) -> bool:
    """True for the name of a file directly in a folder: no separators, no `..`, not hidden."""
    if not isinstance(name, str) or not name or name.startswith(".") or "\\" in name:
        return False
    return "\0" not in name and PurePosixPath(name).name == name


def _present(shard: Path) -> Path:
    if shard.exists():
        return shard
    raise CheckpointError(
        "is missing, though the index names it", param=str(shard), fix="fetch the model again"
    )


def _indexed(
    directory: Path, by_file: Mapping[Path, Mapping[str, TensorEntry]]
) -> dict[str, TensorEntry]:
    tensors = {}
    for name, file_name in read_index(directory).items():
        entry = by_file[directory / file_name].get(name)
        if entry is None:
            raise damaged(directory / file_name, f"the tensor {name!r} of the index is missing")
        tensors[name] = entry
    return tensors


def read_index(directory: Path) -> dict[str, str]:
    """The index's map from tensor to file, its file names checked; the files may be missing."""
    path = directory / INDEX_NAME
    weight_map = read_json(path, _MAX_INDEX_BYTES).get("weight_map")
    if not isinstance(weight_map, dict) or not weight_map:
        raise damaged(path, "it has no weight_map")
    for name in set(map(str, weight_map.values())):
        if not is_plain_name(name) or not name.endswith(".safetensors"):
            raise damaged(path, f"{name!r} is not the name of a safetensors file beside it")
    return {str(tensor): str(name) for tensor, name in weight_map.items()}


def _read_header(path: Path) -> dict[str, TensorEntry]:
    with opened(path) as (source, size_bytes):
        length = int.from_bytes(source.read(8), "little")
        if size_bytes < 8 or length > min(MAX_HEADER_BYTES, size_bytes - 8):
            raise damaged(path, f"a header of {length} bytes in a file of {size_bytes}")
        body = source.read(length)
    if len(body) != length:
        raise damaged(path, "the file shrank while its header was read")
    try:
        header = json.loads(body, object_pairs_hook=_without_repetition)
    except (ValueError, RecursionError) as error:
        raise damaged(path, f"the header is no sound JSON: {error}") from error
    if not isinstance(header, dict):
        raise damaged(path, "the header is no JSON object")
    header.pop("__metadata__", None)
    entries = [_entry(path, name, info, 8 + length) for name, info in header.items()]
    _check_cover(path, entries, 8 + length, size_bytes)
    return {entry.name: entry for entry in entries}


def _entry(path: Path, name: str, info: Any, data_start: int) -> TensorEntry:
    if not isinstance(info, dict):
        raise damaged(path, f"the tensor {name!r} is not described by an object")
    dtype, shape, offsets = info.get("dtype"), info.get("shape"), info.get("data_offsets")
    if not isinstance(dtype, str) or dtype not in _DTYPE_BITS:
        raise damaged(path, f"the tensor {name!r} has the unknown dtype {dtype!r}")
    if not _is_counts(shape) or not _is_counts(offsets) or len(offsets) != 2:
        raise damaged(path, f"the tensor {name!r} has shape {shape!r} and offsets {offsets!r}")
    bits = math.prod(shape) * _DTYPE_BITS[dtype]
    if bits % 8 or offsets[1] - offsets[0] != bits // 8:
        raise damaged(path, f"the tensor {name!r} ({dtype}, {shape}) does not fill {offsets}")
    return TensorEntry(name, dtype, tuple(shape), path, data_start + offsets[0], bits // 8)


def _check_cover(path: Path, entries: list[TensorEntry], start: int, size_bytes: int) -> None:
    """The format wants the data part filled without holes, overlaps or a tail."""
    at = start
    for entry in sorted(entries, key=lambda entry: (entry.offset, entry.nbytes)):
        if entry.offset != at:
            raise damaged(path, f"the tensor {entry.name!r} begins at {entry.offset}, not at {at}")
        at += entry.nbytes
    if at > size_bytes:
        raise damaged(path, f"it should be {at} bytes long and is {size_bytes}: truncated")
    if at < size_bytes:
        raise damaged(path, f"it should be {at} bytes long and is {size_bytes}")


def _is_counts(value: Any) -> TypeGuard[list[int]]:
    return isinstance(value, list) and all(
        isinstance(item, int) and not isinstance(item, bool) and 0 <= item < 1 << 63
        for item in value
    )


def _without_repetition(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    values = dict(pairs)
    if len(values) != len(pairs):
        raise ValueError("a name appears twice")
    return values
