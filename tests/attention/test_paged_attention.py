"""The compiled attention computes what plain PyTorch computes, in any split and any batch."""

import itertools

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from steelyard.engine.reference_attention import attend_dense
from steelyard.models.layers.attention import AttentionShape
from steelyard.models.native.interface import NativeKernels, StepBatch
from tests.attention.paged_case import BLOCKS, Case

TOLERANCE = {torch.float32: 2e-5, torch.bfloat16: 2e-2}
GQA = AttentionShape(query_heads=9, kv_heads=3, head_size=64)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=["fp32", "bf16"])
@pytest.mark.parametrize("window", [None, 1, 17, 64, 100])
@pytest.mark.parametrize(
    ("query_heads", "kv_heads", "head_size"), [(9, 3, 64), (4, 4, 64), (8, 1, 128), (14, 2, 64)]
)
@pytest.mark.usefixtures("kernel_threads")
def test_native_attention_equals_the_reference(
    kernels: NativeKernels,
    dtype: torch.dtype,
    window: int | None,
    query_heads: int,
    kv_heads: int,
    head_size: int,
) -> None:
    shape = AttentionShape(query_heads, kv_heads, head_size, window)
    case = Case(shape, dtype)
    got = case.attend(case.native(kernels), case.whole())
    expected = case.attend(case.reference(), case.whole())
    for ours, truth in zip(got, expected, strict=True):
        assert torch.allclose(ours, truth, rtol=0, atol=TOLERANCE[dtype])


@pytest.mark.parametrize("block_tokens", [16, 32, 64])
def test_every_block_size_gives_the_same_bits(kernels: NativeKernels, block_tokens: int) -> None:
    case = Case(GQA, block_tokens=block_tokens)
    small = Case(GQA, block_tokens=16)
    got = case.attend(case.native(kernels), case.whole())
    expected = small.attend(small.native(kernels), small.whole())
    assert all(torch.equal(a, b) for a, b in zip(got, expected, strict=True))


def test_heads_are_normalised_before_rotation_where_the_model_asks(kernels: NativeKernels) -> None:
    case = Case(GQA, torch.float32, normed=True)
    got = case.attend(case.native(kernels), case.whole())
    expected = case.attend(case.reference(), case.whole())
    plain = Case(GQA, torch.float32)
    without = plain.attend(plain.native(kernels), plain.whole())
    assert torch.allclose(got[-1], expected[-1], atol=2e-5)
    assert not torch.allclose(got[-1], without[-1], atol=1e-2)


@settings(max_examples=25, deadline=None)
@given(
    cuts=st.lists(st.integers(1, 299), max_size=6, unique=True),
    window=st.sampled_from([None, 48]),
    threads=st.sampled_from([1, 2]),
)
def test_a_token_gets_the_same_bits_however_its_sequence_is_cut_into_steps(
    kernels: NativeKernels, cuts: list[int], window: int | None, threads: int
) -> None:
    kernels.set_threads(threads)
    case = Case(AttentionShape(9, 3, 64, window))
    whole = case.attend(case.native(kernels), case.whole())[-1]
    borders = [0, *sorted(cuts), 300]
    backend = case.native(kernels)
    last = len(case.lengths) - 1
    parts = []
    for start, end in itertools.pairwise(borders):
        parts += case.attend(backend, [(last, start, end)])
    assert torch.equal(torch.cat(parts), whole)


def test_a_long_context_alone_has_the_same_bits_as_in_a_crowd(kernels: NativeKernels) -> None:
    # Alone it is split over the threads, in a crowd one thread walks over all of it.
    kernels.set_threads(2)
    case = Case(GQA, lengths=(1500, *([900] * 3)))
    backend = case.native(kernels)
    crowd = case.attend(backend, case.whole())[0][-1:]
    alone = case.attend(backend, [(0, 1499, 1500)])[0]
    assert torch.equal(alone, crowd)


def test_log_sum_exp_lets_partial_results_be_merged(kernels: NativeKernels) -> None:
    case = Case(GQA, torch.float32, lengths=(200,))
    pages = kernels.KVPages(_filled_pages(case), 9, 3, 64, 16)
    queries = torch.randn(200, 9, 64)
    batch = _native_batch(kernels, case)
    output, lse = pages.paged_attention(batch, queries, scale=GQA.scale)
    keys, values = case.qkv[0].view(200, 15, 64)[:, 9:12], case.qkv[0].view(200, 15, 64)[:, 12:]
    truth, truth_lse = attend_dense(queries, keys, values, torch.arange(200), GQA)
    assert torch.allclose(output, truth, atol=2e-5)
    assert torch.allclose(lse, truth_lse, atol=2e-5)


def test_stale_values_in_unused_slots_do_not_leak(kernels: NativeKernels) -> None:
    case = Case(GQA, torch.float32, lengths=(300, 5))
    backend = case.native(kernels)
    alone = case.attend(backend, [(1, 0, 5)])[0]
    # The longer sequence now writes into the very blocks of the shorter one, which then returns.
    case.table[1, :] = case.table[0, :]
    case.attend(backend, [(0, 0, 300)])
    assert torch.equal(case.attend(backend, [(1, 0, 5)])[0], alone)


def test_impossible_shapes_are_refused(kernels: NativeKernels) -> None:
    pages = torch.zeros(BLOCKS * 3 * 2 * 16 * 64)
    for heads, size, tokens in ((9, 96, 16), (10, 64, 16), (9, 64, 24)):
        with pytest.raises(RuntimeError):
            kernels.KVPages(pages, heads, 3, size, tokens)


def _filled_pages(case: Case) -> torch.Tensor:
    """Keys and values of sequence 0, unrotated, in the float layout of pages.h."""
    heads = case.qkv[0].view(-1, 15, 64)
    pages = torch.zeros(BLOCKS, 3, 2, 64 * 16)
    for token, row in enumerate(heads):
        page = pages[int(case.table[0, token // 16])]
        page[:, 0].view(3, 64, 16)[:, :, token % 16] = row[9:12]
        page[:, 1].view(3, 16, 64)[:, token % 16] = row[12:]
    return pages.view(-1)


def _native_batch(kernels: NativeKernels, case: Case) -> StepBatch:
    batch = case.batch(case.whole())
    arrays = (batch.positions, batch.starts, batch.contexts, batch.rows, case.table)
    return kernels.StepBatch(*arrays, case.block_tokens)


def test_index_arrays_that_point_outside_are_refused(kernels: NativeKernels) -> None:
    def batch(
        positions: list[int], starts: list[int], contexts: list[int], rows: list[int]
    ) -> None:
        arrays = [np.asarray(a, dtype=np.int32) for a in (positions, starts, contexts, rows)]
        kernels.StepBatch(*arrays, np.zeros((2, 4), dtype=np.int32), 16)

    batch([0, 1, 63], [0, 2, 3], [2, 64], [0, 1])
    for wrong in (
        ([0, 1, 64], [0, 2, 3], [2, 65], [0, 1]),
        ([0, 2, 63], [0, 2, 3], [2, 64], [0, 1]),
        ([0, 1, 63], [0, 2, 3], [2, 64], [0, 2]),
        ([0, 1, -1], [0, 2, 3], [2, 64], [0, 1]),
        ([0, 1, 63], [0, 2, 4], [2, 64], [0, 1]),
        ([0, 1, 63], [0, 3], [2, 64], [0, 1]),
    ):
        with pytest.raises(RuntimeError):
            batch(*wrong)
