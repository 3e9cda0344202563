"""A damaged GGUF file is refused with `CheckpointError` naming it, and nothing worse happens."""

import os
import random
import resource
import struct
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from steelyard.checkpoints import open_checkpoint
from steelyard.checkpoints.gguf_file import read_gguf
from steelyard.contract.errors import CheckpointError
from steelyard.text import open_tokenizer
from tests.checkpoints.builders import write_gguf


@pytest.fixture(scope="module")
def sound(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    """A complete file."""
    return write_gguf(tmp_path_factory.mktemp("gguf") / "sound.gguf").read_bytes()


@pytest.fixture(scope="module")
def head_bytes(sound: bytes, tmp_path_factory: pytest.TempPathFactory) -> int:
    """Where the tensor data begins."""
    path = tmp_path_factory.mktemp("gguf") / "sound.gguf"
    path.write_bytes(sound)
    return min(tensor.offset for tensor in read_gguf(path).tensors.values())


def test_truncation_at_any_byte_is_noticed(tmp_path: Path, sound: bytes, head_bytes: int) -> None:
    path = tmp_path / "cut.gguf"
    cuts = [*range(0, head_bytes, 7), *range(head_bytes, len(sound), 997), len(sound) - 1]
    for cut in cuts:
        path.write_bytes(sound[:cut])
        with pytest.raises(CheckpointError) as caught:
            read_gguf(path)
        assert caught.value.param == str(path)


def test_a_flipped_bit_in_the_head_is_refused_or_harmless(
    tmp_path: Path, sound: bytes, head_bytes: int
) -> None:
    """Text and numbers can change unnoticed (checksums find that); nothing else may happen."""
    path = tmp_path / "flipped.gguf"
    chosen = random.Random(7).sample(range(head_bytes * 8), 1500)
    refused = 0
    for bit in chosen:
        damaged = bytearray(sound)
        damaged[bit // 8] ^= 1 << bit % 8
        path.write_bytes(damaged)
        try:
            checkpoint = open_checkpoint(path)
            open_tokenizer(checkpoint.vocabulary)
        except CheckpointError as error:
            assert error.param is not None
            assert str(path) in error.param
            refused += 1
    assert refused > 50


@settings(max_examples=150, deadline=None)
@given(data=st.binary(max_size=400))
def test_any_bytes_after_the_magic_are_refused_or_read(
    tmp_path_factory: pytest.TempPathFactory, data: bytes
) -> None:
    path = tmp_path_factory.mktemp("any") / "any.gguf"
    path.write_bytes(b"GGUF" + struct.pack("<I", 3) + data)
    try:
        read_gguf(path)
    except CheckpointError as error:
        assert error.param == str(path)


@pytest.mark.parametrize(
    ("tensors", "fields"),
    [(2**64 - 1, 0), (0, 2**64 - 1), (2**40, 2**40), (262_145, 0), (0, 65_537), (1, 0), (0, 1)],
)
def test_absurd_counts_are_refused(tmp_path: Path, tensors: int, fields: int) -> None:
    _refused(tmp_path, _head(tensors, fields))


@pytest.mark.parametrize("length", [2**64 - 1, 2**63, 2**40, 65_536, 100])
def test_absurd_lengths_of_names_are_refused(tmp_path: Path, length: int) -> None:
    _refused(tmp_path, _head(0, 1) + struct.pack("<Q", length) + b"x" * 50)


@pytest.mark.parametrize("count", [2**64 - 1, 2**61, 2**33, 1000])
@pytest.mark.parametrize("element_type", [0, 4, 8, 10])
def test_absurd_array_lengths_are_refused_without_memory(
    tmp_path: Path, count: int, element_type: int
) -> None:
    body = _head(0, 1) + _text("a") + struct.pack("<IIQ", 9, element_type, count) + b"\1" * 64
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    _refused(tmp_path, body)
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 64 * 1024


def test_a_text_longer_than_the_file_inside_an_array_is_refused(tmp_path: Path) -> None:
    body = _head(0, 1) + _text("a") + struct.pack("<IIQ", 9, 8, 2) + _text("fine")
    _refused(tmp_path, body + struct.pack("<Q", 2**62) + b"short")


@pytest.mark.parametrize("value_type", [9 << 8, 13, 255, 2**31])
def test_unknown_value_types_are_refused(tmp_path: Path, value_type: int) -> None:
    _refused(tmp_path, _head(0, 1) + _text("a") + struct.pack("<I", value_type) + bytes(64))


def test_nested_arrays_are_refused(tmp_path: Path) -> None:
    inner = struct.pack("<IQ", 9, 1) * 500
    _refused(tmp_path, _head(0, 1) + _text("a") + struct.pack("<I", 9) + inner + bytes(64))


def test_a_field_that_appears_twice_is_refused(tmp_path: Path) -> None:
    field = _text("a") + struct.pack("<IB", 0, 1)
    assert "twice" in _refused(tmp_path, _head(0, 2) + field + field)


def test_text_that_is_not_utf8_is_refused(tmp_path: Path) -> None:
    bad = struct.pack("<Q", 3) + b"\xff\xfe\xfd"
    assert "UTF-8" in _refused(tmp_path, _head(0, 1) + bad + struct.pack("<IB", 0, 1))
    assert "UTF-8" in _refused(tmp_path, _head(0, 1) + _text("a") + struct.pack("<I", 8) + bad)


def test_tokens_that_are_not_utf8_are_refused_when_read(tmp_path: Path) -> None:
    path = tmp_path / "tokens.gguf"
    array = struct.pack("<IIQ", 9, 8, 1) + struct.pack("<Q", 2) + b"\xc3\x28"
    path.write_bytes(_head(0, 1) + _text("tokenizer.ggml.tokens") + array + bytes(64))
    with pytest.raises(CheckpointError, match=r"tokens\[0\]"):
        read_gguf(path).strings("tokenizer.ggml.tokens")


def test_big_endian_files_are_named_as_such(tmp_path: Path) -> None:
    assert "big-endian" in _refused(tmp_path, b"GGUF" + struct.pack(">I", 3) + bytes(64))


@pytest.mark.parametrize("version", [0, 1, 4, 2**31])
def test_other_versions_are_refused(tmp_path: Path, version: int) -> None:
    assert "version" in _refused(tmp_path, b"GGUF" + struct.pack("<I", version) + bytes(64))


@pytest.mark.parametrize("alignment", [0, 3, 48, 2**21])
def test_alignments_that_cannot_be_are_refused(tmp_path: Path, alignment: int) -> None:
    field = _text("general.alignment") + struct.pack("<II", 4, alignment)
    assert "alignment" in _refused(tmp_path, _head(0, 1) + field + bytes(64))


@pytest.mark.parametrize(
    ("infos", "reason"),
    [
        ([("a", [8], 0, 0), ("a", [8], 0, 32)], "twice"),
        ([("a", [8], 0, 0), ("b", [8], 0, 0)], "overlap"),
        ([("a", [8], 0, 16)], "aligned"),
        ([("a", [8], 0, 2**63)], "file ends"),
        ([("a", [2**62, 2**62], 0, 0)], "file ends"),
        ([("a", [0], 0, 0)], "shape"),
        ([("a", [31], 8, 0)], "shape"),
        ([("a", [], 0, 0)], "dimensions"),
        ([("a", [1] * 5, 0, 0)], "dimensions"),
    ],
)
def test_tensors_that_cannot_lie_there_are_refused(
    tmp_path: Path, infos: list[tuple[str, list[int], int, int]], reason: str
) -> None:
    body = _head(len(infos), 0) + b"".join(_info(*info) for info in infos)
    assert reason in _refused(tmp_path, body + bytes(256))


@pytest.mark.parametrize(
    ("type_id", "name"), [(12, "Q4_K"), (14, "Q6_K"), (39, "MXFP4"), (77, "77")]
)
def test_unsupported_tensor_types_are_refused_by_name_with_the_way_out(
    tmp_path: Path, type_id: int, name: str
) -> None:
    path = tmp_path / "kquant.gguf"
    path.write_bytes(_head(1, 0) + _info("blk.0.attn_q.weight", [256], type_id, 0) + bytes(512))
    with pytest.raises(CheckpointError, match=name) as caught:
        read_gguf(path)
    assert "Q8_0" in caught.value.fix
    assert "blk.0.attn_q.weight" in caught.value.message


def test_a_missing_file_and_a_directory_are_refused(tmp_path: Path) -> None:
    for path in (tmp_path / "missing.gguf", tmp_path):
        with pytest.raises(CheckpointError) as caught:
            read_gguf(path)
        assert caught.value.param == str(path)


def test_a_pipe_in_place_of_a_file_is_refused_without_waiting(tmp_path: Path) -> None:
    path = tmp_path / "pipe.gguf"
    os.mkfifo(path)
    with pytest.raises(CheckpointError, match="regular"):
        read_gguf(path)


def _refused(tmp_path: Path, body: bytes) -> str:
    path = tmp_path / "bad.gguf"
    path.write_bytes(body)
    with pytest.raises(CheckpointError) as caught:
        read_gguf(path)
    assert caught.value.param == str(path)
    return caught.value.message


def _head(tensors: int, fields: int) -> bytes:
    return b"GGUF" + struct.pack("<IQQ", 3, tensors, fields)


def _text(text: str) -> bytes:
    return struct.pack("<Q", len(text.encode())) + text.encode()


def _info(name: str, shape: list[int], type_id: int, offset: int) -> bytes:
    sizes = b"".join(struct.pack("<Q", size) for size in shape)
    return _text(name) + struct.pack("<I", len(shape)) + sizes + struct.pack("<IQ", type_id, offset)
