"""Fixtures of the tests of attention."""

from tests.kernels_fixtures import kernel_threads, kernels, one_torch_thread

__all__ = ["kernel_threads", "kernels", "one_torch_thread"]
