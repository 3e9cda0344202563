"""Checksums find what structure cannot: a weight that changed."""

import shutil
from pathlib import Path

import pytest

from steelyard.checkpoints import PullProgress, open_checkpoint, verify_checkpoint
from steelyard.contract.errors import CheckpointError
from tests.checkpoints.builders import write_gguf


def test_the_real_model_is_as_published(smollm2_path: Path) -> None:
    seen: list[PullProgress] = []
    checked = verify_checkpoint(open_checkpoint(smollm2_path), seen.append)
    assert checked == (smollm2_path,)
    assert seen[-1].done_bytes == seen[-1].total_bytes == smollm2_path.stat().st_size


def test_one_flipped_bit_of_a_weight_is_found_and_the_file_named(
    tmp_path: Path, smollm2_path: Path
) -> None:
    """The copy lies outside the cache: the catalog knows the file wherever it is."""
    copy = tmp_path / smollm2_path.name
    shutil.copy(smollm2_path, copy)
    assert verify_checkpoint(open_checkpoint(copy)) == (copy,)
    with copy.open("r+b") as file:
        file.seek(50_000_000)
        byte = file.read(1)[0]
        file.seek(50_000_000)
        file.write(bytes([byte ^ 0x10]))
    with pytest.raises(CheckpointError, match="SHA-256") as caught:
        verify_checkpoint(open_checkpoint(copy))
    assert caught.value.param == str(copy)


def test_a_model_of_unknown_origin_has_nothing_to_compare_with(tmp_path: Path) -> None:
    checkpoint = open_checkpoint(write_gguf(tmp_path / "mine.gguf"))
    assert verify_checkpoint(checkpoint) == ()
