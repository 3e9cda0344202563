"""The compiled kernels, as fixtures for the tests that need them."""

from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from steelyard.models.native.build import KernelsUnavailable, load_kernels
from steelyard.models.native.interface import NativeKernels


@pytest.fixture(scope="session")
def kernels(cache_dir: Path) -> NativeKernels:
    """The C++ kernels, compiled into the user's cache once."""
    try:
        return load_kernels(cache_dir)
    except KernelsUnavailable as error:
        pytest.skip(str(error))


@pytest.fixture(autouse=True, scope="module")
def one_torch_thread() -> Iterator[None]:
    """OpenMP threads spin for each other: on a busy machine two are far slower than one."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture(params=[1, 2])
def kernel_threads(request: pytest.FixtureRequest, kernels: NativeKernels) -> int:
    """Runs a test with one and with two kernel threads."""
    kernels.set_threads(request.param)
    return int(request.param)
