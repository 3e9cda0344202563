"""Every implementation of a weight matrix computes what plain PyTorch computes."""

import pytest
import torch
from torch.nn import functional

from steelyard.models.native.interface import NativeKernels
from steelyard.models.ops.matrix import Norm
from steelyard.models.ops.native_matrix import pack_native
from steelyard.models.ops.packed_matrix import PackedInt4Matrix, PackedInt8Matrix
from steelyard.models.ops.torch_matrix import TorchMatrix, rms_norm
from steelyard.models.weights.source import Blocks4, Source
from tests.models.sources import KINDS, random_rows, random_source

SHAPES = [(960, 576), (576, 1536), (70, 64), (32, 32), (1, 96)]
ROWS = [1, 2, 5, 6, 7, 12, 13, 40]


def rounded(x: torch.Tensor, kind: str) -> torch.Tensor:
    """Activations as the kernels round them: to bfloat16, or to eight bits per 32 values."""
    if kind == "bf16":
        return x.to(torch.bfloat16).float()
    groups = x.view(x.shape[0], -1, 32)
    scale = groups.abs().amax(-1, keepdim=True) / 127
    return ((groups / scale.clamp_min(1e-30)).round() * scale).view(x.shape)


def product(x: torch.Tensor, source: Source, kind: str) -> torch.Tensor:
    return functional.linear(rounded(x, kind).double(), source.dense().double()).float()


def assert_close(got: torch.Tensor, expected: torch.Tensor, allowed: float = 1e-3) -> None:
    """Within `allowed` of the results' size: a value may round the other way on a tie."""
    assert float((got - expected).abs().max()) <= allowed * float(expected.square().mean().sqrt())


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(("outputs", "width"), SHAPES)
@pytest.mark.usefixtures("kernel_threads")
def test_native_products_are_those_of_the_dense_weights(
    kernels: NativeKernels, kind: str, outputs: int, width: int
) -> None:
    source = random_source(kind, outputs, width)
    matrix = pack_native(kernels, source, None, gated=False)
    norm = Norm(torch.rand(width) + 0.5, 1e-5)
    for rows in ROWS:
        x = random_rows(rows, width)
        assert_close(matrix.linear(x), product(x, source, kind), 1e-5)
        normed = product(rms_norm(x, norm), source, kind)
        assert_close(matrix.linear(x, norm), normed, 0.02)


@pytest.mark.parametrize("kind", KINDS)
def test_a_bias_is_added_and_a_sum_is_accumulated(kernels: NativeKernels, kind: str) -> None:
    source, bias = random_source(kind, 100, 64), torch.randn(100)
    matrix = pack_native(kernels, source, bias, gated=False)
    x = random_rows(9, 64)
    expected = product(x, source, kind) + bias
    assert_close(matrix.linear(x), expected)
    out = torch.randn(9, 100)
    total = out + expected
    matrix.linear_add(x, out)
    assert_close(out, total)


@pytest.mark.parametrize("kind", KINDS)
def test_the_gated_product_multiplies_each_gate_with_its_own_up(
    kernels: NativeKernels, kind: str
) -> None:
    source = random_source(kind, 2 * 48, 64)
    x = random_rows(9, 64) / 8
    expected = TorchMatrix(source.dense()).linear_gate(rounded(x, kind))
    matrix = pack_native(kernels, source, None, gated=True)
    assert_close(matrix.linear_gate(x), expected)


@pytest.mark.parametrize("kind", KINDS)
def test_rows_of_a_packed_matrix_are_its_weights_exactly(kernels: NativeKernels, kind: str) -> None:
    source = random_source(kind, 70, 64)
    ids = torch.tensor([69, 0, 31, 32, 0])
    matrix = pack_native(kernels, source, None, gated=False)
    assert torch.equal(matrix.rows(ids), source.dense()[ids])


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.usefixtures("kernel_threads")
def test_a_rows_result_has_the_same_bits_in_every_batch(kernels: NativeKernels, kind: str) -> None:
    matrix = pack_native(kernels, random_source(kind, 200, 576), None, gated=False)
    norm = Norm(torch.rand(576) + 0.5, 1e-5)
    x = random_rows(41, 576)
    together = matrix.linear(x, norm)
    for size in (1, 3, 6, 7, 12, 20):
        parts = [matrix.linear(part.contiguous(), norm) for part in x.split(size)]
        assert torch.equal(torch.cat(parts), together)


def test_constant_rows_and_zero_rows_stay_finite(kernels: NativeKernels) -> None:
    for kind in KINDS:
        matrix = pack_native(kernels, random_source(kind, 32, 64), None, gated=False)
        assert torch.equal(matrix.linear(torch.zeros(2, 64)), torch.zeros(2, 32))
        assert matrix.linear(torch.full((2, 64), 1e30)).isfinite().all()


def test_malformed_arguments_are_refused_before_any_memory_is_touched(
    kernels: NativeKernels,
) -> None:
    matrix = pack_native(kernels, random_source("int8", 32, 64), None, gated=False)
    for bad in (torch.zeros(1, 63), torch.zeros(1, 64).double(), torch.zeros(64, 2).t()):
        with pytest.raises(RuntimeError):
            matrix.linear(bad)
    with pytest.raises(RuntimeError, match="norm"):
        matrix.linear(torch.zeros(1, 64), Norm(torch.zeros(32), 1e-5))
    with pytest.raises(RuntimeError, match="out of range"):
        matrix.rows(torch.tensor([32]))


def test_torchs_own_packed_kernels_are_close_to_the_dense_weights() -> None:
    x = random_rows(5, 576)
    four = random_source("int4", 96, 576)
    assert isinstance(four, Blocks4)
    expected = functional.linear(x, four.dense())
    assert_close(PackedInt4Matrix(four, None).linear(x), expected, 0.05)
    eight = random_source("int8", 96, 576)
    expected = functional.linear(x, eight.dense())
    matrix = PackedInt8Matrix(eight, None)
    assert_close(matrix.linear(x), expected, 0.05)
    ids = torch.tensor([3, 95])
    assert_close(matrix.rows(ids), eight.dense()[ids], 0.05)
