"""Opens a model on disk: decides what it is and describes it, reading heads and configuration only.

Fetching is `store`'s, checksums are `verify`'s, tensors are `models`', text is `text`'s business.
"""

from pathlib import Path
from types import MappingProxyType
from typing import Any

from steelyard.checkpoints import gguf_names
from steelyard.checkpoints._reading import damaged, read_json
from steelyard.checkpoints.chat_sources import read_chat_template, read_special_tokens
from steelyard.checkpoints.description import (
    Checkpoint,
    SpecialTokens,
    TensorEntry,
    TokenizerFile,
)
from steelyard.checkpoints.gguf_file import GGUFFile, read_gguf
from steelyard.checkpoints.gguf_vocabulary import GGUFVocabulary
from steelyard.checkpoints.hf_config import describe_model, refuse_remote_code
from steelyard.checkpoints.manifest import read_manifest
from steelyard.checkpoints.safetensors_files import find_safetensors, read_tensors
from steelyard.contract.errors import CheckpointError

__all__ = ["open_checkpoint"]

_MAX_JSON_BYTES = 16 * 1024 * 1024


def open_checkpoint(path: Path) -> Checkpoint:
    """Describe the model at `path`: a GGUF file, or a directory of safetensors or one GGUF.

    Raises `CheckpointError` naming the file, the reason and, where there is one, the way out.
    """
    if path.suffix == ".gguf" and not path.is_dir():
        return _open_gguf(path)
    if not path.is_dir():
        raise CheckpointError(
            "is neither a directory nor a .gguf file",
            param=str(path),
            fix="give a model's name, org/name of the Hugging Face hub, or a path",
        )
    weights = find_safetensors(path)
    if weights:
        return _open_safetensors(path, weights)
    return _open_gguf(_only_gguf(path))


def _only_gguf(directory: Path) -> Path:
    """The directory's single GGUF file; otherwise says why nothing here can be opened."""
    found = sorted(directory.glob("*.gguf"))
    if len(found) == 1:
        return found[0]
    if found:
        names = ", ".join(path.name for path in found[:8])
        raise CheckpointError(
            f"holds {len(found)} GGUF files: {names}", param=str(directory), fix="name one of them"
        )
    pickled = [
        path.name for suffix in ("bin", "pt", "pth") for path in directory.glob(f"*.{suffix}")
    ]
    if pickled:
        raise CheckpointError(
            f"holds pickled weights only ({pickled[0]}), which can run code when loaded",
            param=str(directory),
            fix="use a safetensors or GGUF version of the model, or convert it where that is safe",
        )
    raise CheckpointError(
        "holds no weights (*.safetensors or *.gguf)",
        param=str(directory),
        fix="check the path, or fetch the model again",
    )


def _open_safetensors(directory: Path, weights: list[Path]) -> Checkpoint:
    config_path = directory / "config.json"
    raw = read_json(config_path, _MAX_JSON_BYTES)
    refuse_remote_code(raw, config_path)
    architecture = raw.get("model_type")
    if not isinstance(architecture, str) or not architecture:
        raise damaged(config_path, "model_type is missing")
    tokenizer_path = directory / "tokenizer.json"
    if not tokenizer_path.exists():
        raise CheckpointError(
            "there is no tokenizer.json",
            param=str(directory),
            fix="use a model that ships one; older tokenizer formats are not read",
        )
    tensors = read_tensors(directory, weights)
    tokenizer_config = _read_optional(directory / "tokenizer_config.json")
    return Checkpoint(
        name=_name_of(directory, directory.name),
        path=directory,
        format="safetensors",
        architecture=architecture,
        config=describe_model(
            raw,
            generation=_read_optional(directory / "generation_config.json"),
            has_output_matrix="lm_head.weight" in tensors,
            where=config_path,
        ),
        tensors=MappingProxyType(tensors),
        qk_rows_permuted=False,
        vocabulary=TokenizerFile(tokenizer_path),
        chat_template=read_chat_template(directory, tokenizer_config),
        special_tokens=read_special_tokens(directory, tokenizer_config),
    )


def _open_gguf(path: Path) -> Checkpoint:
    file = read_gguf(path)
    architecture = gguf_names.architecture_of(file)
    tensors = _gguf_tensors(file)
    return Checkpoint(
        name=_name_of(path.parent, path.stem),
        path=path,
        format="gguf",
        architecture=architecture,
        config=describe_model(
            gguf_names.hf_config_of(file, architecture),
            generation={},
            has_output_matrix="lm_head.weight" in tensors,
            where=path,
        ),
        tensors=MappingProxyType(tensors),
        qk_rows_permuted=gguf_names.qk_rows_permuted(architecture),
        vocabulary=GGUFVocabulary(file),
        chat_template=file.string("tokenizer.chat_template"),
        special_tokens=_gguf_special_tokens(file),
    )


def _gguf_tensors(file: GGUFFile) -> dict[str, TensorEntry]:
    tensors = {}
    for tensor in file.tensors.values():
        name = gguf_names.hf_tensor_name(tensor.name, file)
        tensors[name] = TensorEntry(
            name, tensor.dtype, tensor.shape, file.path, tensor.offset, tensor.nbytes
        )
    return tensors


def _gguf_special_tokens(file: GGUFFile) -> SpecialTokens:
    tokens = file.strings("tokenizer.ggml.tokens") or []

    def text_of(key: str) -> str | None:
        token_id = file.integer(f"tokenizer.ggml.{key}_token_id")
        if token_id is None:
            return None
        if not 0 <= token_id < len(tokens):
            raise damaged(file.path, f"tokenizer.ggml.{key}_token_id is {token_id}")
        return tokens[token_id]

    return SpecialTokens(
        bos=text_of("bos"), eos=text_of("eos"), pad=text_of("padding"), unk=text_of("unknown")
    )


def _name_of(directory: Path, default: str) -> str:
    manifest = read_manifest(directory)
    return manifest.name if manifest else default


def _read_optional(path: Path) -> dict[str, Any]:
    """A JSON object; empty when the file does not exist."""
    return read_json(path, _MAX_JSON_BYTES) if path.exists() else {}
