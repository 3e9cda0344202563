"""Safetensors headers: read like the format's own library, and refused when they are unsound."""

import json
import struct
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors.numpy import save_file

from steelyard.checkpoints import open_checkpoint
from steelyard.checkpoints.safetensors_files import INDEX_NAME, find_safetensors, read_tensors
from steelyard.contract.errors import CheckpointError
from tests.checkpoints.builders import safetensors_bytes, write_hf_directory


def test_the_bytes_found_are_those_that_were_saved(tmp_path: Path) -> None:
    saved = {
        "a": np.arange(12, dtype=np.float32).reshape(3, 4),
        "b": np.arange(5, dtype=np.float16),
        "empty": np.zeros((0, 4), dtype=np.float32),
        "scalar": np.array(2.5, dtype=np.float32),
    }
    save_file(saved, tmp_path / "model.safetensors", metadata={"format": "pt"})
    tensors = read_tensors(tmp_path, find_safetensors(tmp_path))
    assert set(tensors) == set(saved)
    for name, expected in saved.items():
        entry = tensors[name]
        body = entry.file.read_bytes()[entry.offset : entry.offset + entry.nbytes]
        assert body == expected.tobytes()
        assert entry.shape == expected.shape
    assert (tensors["a"].dtype, tensors["b"].dtype) == ("F32", "F16")


def test_sharded_models_are_read_through_their_index(tmp_path: Path) -> None:
    write_hf_directory(tmp_path, shards=3)
    files = find_safetensors(tmp_path)
    tensors = read_tensors(tmp_path, files)
    assert len(files) == 3
    assert {entry.file for entry in tensors.values()} == set(files)


def test_a_missing_shard_is_named(tmp_path: Path) -> None:
    write_hf_directory(tmp_path, shards=3)
    (tmp_path / "model-00002-of-00003.safetensors").unlink()
    with pytest.raises(CheckpointError, match="missing") as caught:
        open_checkpoint(tmp_path)
    assert caught.value.param == str(tmp_path / "model-00002-of-00003.safetensors")


def test_a_tensor_that_its_shard_lacks_is_named_with_the_shard(tmp_path: Path) -> None:
    write_hf_directory(tmp_path, shards=2)
    path = tmp_path / INDEX_NAME
    index = json.loads(path.read_text())
    index["weight_map"]["model.ghost.weight"] = "model-00001-of-00002.safetensors"
    path.write_text(json.dumps(index))
    with pytest.raises(CheckpointError, match=r"model\.ghost\.weight") as caught:
        open_checkpoint(tmp_path)
    assert "model-00001-of-00002" in str(caught.value.param)


@pytest.mark.parametrize(
    "name",
    [
        "../outside.safetensors",
        "/etc/passwd",
        "sub/model.safetensors",
        "..",
        "",
        ".hidden.safetensors",
        "a\\b.safetensors",
        "nul\0.safetensors",
        "weights.bin",
        7,
        None,
        ["model.safetensors"],
    ],
)
def test_an_index_cannot_name_files_elsewhere(tmp_path: Path, name: Any) -> None:
    directory = tmp_path / "model"
    write_hf_directory(directory, shards=2)
    (tmp_path / "outside.safetensors").write_bytes(safetensors_bytes({"x": ("F32", [1], bytes(4))}))
    (directory / INDEX_NAME).write_text(json.dumps({"weight_map": {"x": name}}))
    with pytest.raises(CheckpointError) as caught:
        open_checkpoint(directory)
    assert caught.value.param == str(directory / INDEX_NAME)


@pytest.mark.parametrize("body", ["", "[]", "{}", '{"weight_map": []}', "{" * 100_000, "\udcff"])
def test_a_broken_index_is_named(tmp_path: Path, body: str) -> None:
    write_hf_directory(tmp_path, shards=2)
    (tmp_path / INDEX_NAME).write_bytes(body.encode(errors="surrogateescape"))
    with pytest.raises(CheckpointError) as caught:
        open_checkpoint(tmp_path)
    assert caught.value.param == str(tmp_path / INDEX_NAME)


def test_several_files_without_an_index_are_refused(tmp_path: Path) -> None:
    write_hf_directory(tmp_path, shards=2)
    (tmp_path / INDEX_NAME).unlink()
    with pytest.raises(CheckpointError, match=r"index"):
        open_checkpoint(tmp_path)


def test_truncation_at_any_byte_is_noticed(tmp_path: Path) -> None:
    sound = safetensors_bytes({"a": ("F32", [4], bytes(16)), "b": ("BF16", [2, 3], bytes(12))})
    for cut in range(len(sound)):
        _refused(tmp_path, sound[:cut])


def test_bytes_behind_the_last_tensor_are_refused(tmp_path: Path) -> None:
    sound = safetensors_bytes({"a": ("F32", [4], bytes(16))})
    _refused(tmp_path, sound + b"\0")


@pytest.mark.parametrize("length", [2**64 - 1, 2**63, 100_000_001, 10_000])
def test_absurd_header_lengths_are_refused(tmp_path: Path, length: int) -> None:
    _refused(tmp_path, struct.pack("<Q", length) + b"{}" * 100)


def _described(**changes: Any) -> dict[str, Any]:
    return {"a": {"dtype": "F32", "shape": [4], "data_offsets": [0, 16]} | changes}


@pytest.mark.parametrize(
    "header",
    [
        _described(dtype="F33"),
        _described(dtype=None),
        _described(dtype=[]),
        _described(shape=[5]),
        _described(shape=[-4]),
        _described(shape=[2**62, 2**62]),
        _described(shape=[True, 4]),
        _described(shape=["4"]),
        _described(shape=4),
        _described(shape=[4.0]),
        _described(data_offsets=[0, 17]),
        _described(data_offsets=[16, 0]),
        _described(data_offsets=[1, 17]),
        _described(data_offsets=[2**63, 2**63 + 16]),
        _described(data_offsets=[0]),
        _described(data_offsets=None),
        {"a": 1},
        {"a": None},
        _described() | {"b": {"dtype": "F32", "shape": [4], "data_offsets": [0, 16]}},
        _described() | {"b": {"dtype": "F32", "shape": [4], "data_offsets": [20, 36]}},
        {},
    ],
)
def test_headers_that_do_not_fit_the_data_are_refused(
    tmp_path: Path, header: dict[str, Any]
) -> None:
    _refused(tmp_path, safetensors_bytes({"a": ("F32", [4], bytes(16))}, header))


@pytest.mark.parametrize(
    "text",
    [
        b"[]",
        b"7",
        b'{"a":',
        b"\xff\xfe",
        b'{"a": NaN}',
        b"[" * 50_000,
        b'{"a":{"dtype":"F32","shape":[0],"data_offsets":[0,0]},'
        b'"a":{"dtype":"F32","shape":[0],"data_offsets":[0,0]}}',
    ],
)
def test_headers_that_are_no_object_or_repeat_a_name_are_refused(
    tmp_path: Path, text: bytes
) -> None:
    _refused(tmp_path, struct.pack("<Q", len(text)) + text)


@settings(max_examples=200, deadline=None)
@given(data=st.binary(max_size=200), bit=st.integers(0, 999))
def test_any_bytes_and_any_flipped_bit_are_refused_or_read(
    tmp_path_factory: pytest.TempPathFactory, data: bytes, bit: int
) -> None:
    directory = tmp_path_factory.mktemp("any")
    sound = bytearray(safetensors_bytes({"a": ("F32", [4], bytes(16))}))
    sound[bit % (len(sound) * 8) // 8] ^= 1 << bit % 8
    for body in (data, bytes(sound)):
        (directory / "model.safetensors").write_bytes(body)
        try:
            read_tensors(directory, find_safetensors(directory))
        except CheckpointError as error:
            assert error.param == str(directory / "model.safetensors")


def _refused(tmp_path: Path, body: bytes) -> None:
    path = tmp_path / "model.safetensors"
    path.write_bytes(body)
    with pytest.raises(CheckpointError) as caught:
        read_tensors(tmp_path, find_safetensors(tmp_path))
    assert caught.value.param == str(path)
