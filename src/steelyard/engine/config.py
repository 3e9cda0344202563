"""What an engine process is told at its start, as one JSON document on its standard input.

Imports no torch: the parent process builds this, the engine process decodes it. `None` never
means "choose for me": the parent resolves what it can and passes `auto` where only the engine
process can measure.
"""

from typing import Literal

import msgspec

__all__ = ["EngineConfig"]


class EngineConfig(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One replica of one model."""

    checkpoint: str
    """File or directory of the model, already fetched."""
    model: str
    """Name that clients use."""
    listen: str
    """`unix:/path/to/socket` or `tcp:host:port`."""
    runner: Literal["torch", "fake"] = "torch"
    """What computes the steps. `fake` draws made-up tokens at made-up speed, without torch: for
    tests and drills; its checkpoint is a small JSON file (`engine.fake_runner.FakeModel`)."""
    device: Literal["auto", "cpu", "cuda"] = "auto"
    threads: int = 0
    """Compute threads on a CPU; 0 means one per physical core this process may use."""
    precision: Literal["auto", "fp32", "bf16", "int8", "int4"] = "auto"
    """Of the weights. `auto`: the fastest that keeps the model's quality (docs/precision.md)."""
    kernels: Literal["auto", "native", "reference"] = "auto"
    """`native` needs a C++ compiler once; `auto` falls back to `reference` with a warning."""
    kv_dtype: Literal["auto", "fp32", "bf16"] = "auto"
    kv_bytes: int = 0
    """Memory of the KV cache; 0 means what `kv_memory_share` of free memory gives."""
    block_tokens: int = 16
    context_tokens: int = 0
    """Longest sequence; 0 means the model's own limit."""
    max_running: int = 64
    max_waiting: int = 1024
    max_step_tokens: int = 512
    min_batch: int = 1
    max_wait_s: float = 0.0
    memory_threshold: float = 0.90
    step_stretch: float = 2.5
    prefix_cache: bool = True
    watchdog_s: float = 120.0
    """A step longer than this ends the process with a stack trace on standard error."""
    drain_s: float = 30.0
    """After SIGTERM, how long accepted requests may go on; the rest is handed back unfinished."""
    parent_pid: int = 0
    """The process ends when this one, which must have started it, is gone, and leaves Ctrl-C to
    it; 0: nobody's child, Ctrl-C stops it."""
    cache_dir: str = ""
    """Where compiled kernels are kept; empty means torch's own default."""
