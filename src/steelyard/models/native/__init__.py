"""C++ kernels for CPUs: packed linear layers and paged attention (sources in `csrc`).

`build.load_kernels` compiles them once and keeps the result; `interface` types what Python sees.
Every kernel has a plain PyTorch counterpart in `models.ops` or `engine`, compared in tests.
"""
