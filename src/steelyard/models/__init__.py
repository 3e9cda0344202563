"""Model architectures in torch: `ops` < `layers` < one file per family in `families`.

`weights` turns a checkpoint's bytes into matrices, `native` holds the C++ kernels for CPUs. What is
computed in a step, and where KV lies, is decided above, in `engine`.
"""
