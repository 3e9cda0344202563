"""Matrix operations that models are written in, and their implementations.

`matrix` is the interface; `torch_matrix` works everywhere, `native_matrix` uses the compiled CPU
kernels, `packed_matrix` torch's packed integer kernels; `kernels` chooses among them.
"""
