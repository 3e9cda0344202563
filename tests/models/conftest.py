"""Fixtures of the tests of models."""

from tests.kernels_fixtures import kernel_threads, kernels, one_torch_thread

__all__ = ["kernel_threads", "kernels", "one_torch_thread"]
