"""Weights keep their values on the way from the file to the kernels."""

import gguf
import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from steelyard.models.weights.ggml_blocks import BLOCK_BYTES, decode_blocks
from steelyard.models.weights.quantise import to_blocks4, to_blocks8
from steelyard.models.weights.source import Blocks4, Blocks8, Dense, concatenate
from tests.models.sources import random_source


@pytest.mark.parametrize("kind", sorted(BLOCK_BYTES))
def test_decoded_blocks_equal_the_gguf_librarys(kind: str) -> None:
    weights = np.random.default_rng(0).standard_normal((6, 96)).astype(np.float32)
    quantisation = gguf.GGMLQuantizationType[kind]
    data = gguf.quantize(weights, quantisation)
    source = decode_blocks(kind, torch.from_numpy(data.reshape(-1).copy()), (6, 96))
    expected = torch.from_numpy(gguf.dequantize(data, quantisation))
    assert torch.allclose(source.dense(), expected, rtol=0, atol=1e-6)


@given(st.integers(0, 2**32 - 1), st.floats(1e-2, 1e3))
def test_quantised_weights_are_within_half_a_step_of_the_original(seed: int, size: float) -> None:
    generator = torch.Generator().manual_seed(seed)
    dense = Dense(torch.randn(3, 64, generator=generator) * size)
    blocks = dense.values.view(3, 2, 32)
    # Half a step of rounding, and what rounding the scale and minimum to half precision moves.
    for source, step in (
        (to_blocks8(dense), blocks.abs().amax(-1) / 127),
        (to_blocks4(dense), (blocks.amax(-1) - blocks.amin(-1)) / 15),
    ):
        error = (source.dense().view(3, 2, 32) - blocks).abs().amax(-1)
        slack = 2**-10 * blocks.abs().amax(-1) + 1e-6
        assert (error <= 0.5 * step + slack).all()


def test_quantising_what_is_quantised_changes_nothing() -> None:
    four, eight = random_source("int4", 4, 64), random_source("int8", 4, 64)
    assert to_blocks4(four) is four
    assert to_blocks8(eight) is eight


@pytest.mark.parametrize("kinds", [("int4", "int4"), ("int8", "int8"), ("bf16", "bf16")])
def test_stacking_matrices_of_one_kind_keeps_their_bits(kinds: tuple[str, str]) -> None:
    parts = [random_source(kind, 32, 64, seed) for seed, kind in enumerate(kinds)]
    stacked = concatenate(parts)
    assert type(stacked) is type(parts[0])
    assert torch.equal(stacked.dense(), torch.cat([part.dense() for part in parts]))


def test_stacking_different_kinds_becomes_dense() -> None:
    parts = [random_source("int4", 32, 64), random_source("int8", 32, 64)]
    stacked = concatenate(parts)
    assert isinstance(stacked, Dense)
    assert torch.equal(stacked.dense(), torch.cat([part.dense() for part in parts]))


@given(st.permutations(range(8)))
def test_reordering_rows_reorders_their_weights(order: list[int]) -> None:
    index = torch.tensor(order)
    for kind in ("bf16", "int8", "int4"):
        source = random_source(kind, 8, 64)
        taken = source.take(index)
        assert isinstance(taken, Dense | Blocks8 | Blocks4)
        assert torch.equal(taken.dense(), source.dense()[index])
