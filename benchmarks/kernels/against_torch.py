"""The C++ kernels against torch's own operators: linear layers and decode attention.

    python benchmarks/kernels/against_torch.py [--threads 2] [--rounds 15]

Linear: one pass over the matrices of 30 layers of SmolLM2's size, so that weights come from memory
as in a real step. Attention: the decode step of the same 30 layers over a filled cache. Torch is
given its keys and values gathered already, as one contiguous tensor per layer, and the query heads
that share them as one longer query, which is its fastest way; it neither rotates nor stores. Ours
reads pages, rotates and stores. Both sides take turns; medians are printed.
"""

import argparse
import os
import platform
import statistics
import subprocess
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from torch.nn import functional

from steelyard.engine.kv_memory import KVPlan
from steelyard.engine.native_attention import NativeAttention
from steelyard.engine.step_batch import StepBatch
from steelyard.models.layers.attention import AttentionShape, Rotation
from steelyard.models.layers.rotary import build_rotary
from steelyard.models.native.build import load_kernels
from steelyard.models.native.interface import NativeKernels
from steelyard.models.ops.matrix import Matrix
from steelyard.models.ops.native_matrix import pack_native
from steelyard.models.ops.packed_matrix import PackedInt4Matrix, PackedInt8Matrix
from steelyard.models.ops.torch_matrix import TorchMatrix
from steelyard.models.weights.quantise import to_blocks4, to_blocks8
from steelyard.models.weights.source import Dense
from steelyard.scheduling.config import GroupKind, KVGroup
from steelyard.settings import resolve

LAYERS = 30
SIZES = ((960, 576), (576, 576), (3072, 576), (576, 1536))
"""Outputs and width: queries, keys and values; attention's output; gate and up; down."""
SHAPE = AttentionShape(query_heads=9, kv_heads=3, head_size=64)
BLOCK_TOKENS = 16


@dataclass(frozen=True, slots=True)
class Row:
    """Medians in milliseconds over all layers."""

    what: str
    ours_ms: float
    torch_ms: float


def measure_linear(kernels: NativeKernels, precision: str, rows: int, rounds: int) -> Row:
    """All matrices of all layers, once."""
    ours: list[Matrix] = []
    theirs: list[Matrix] = []
    for layer in range(LAYERS):
        for outputs, width in SIZES:
            torch.manual_seed(layer)
            dense = Dense(torch.randn(outputs, width))
            match precision:
                case "bf16":
                    dense = Dense(dense.values.to(torch.bfloat16))
                    ours.append(pack_native(kernels, dense, None, gated=False))
                    theirs.append(TorchMatrix(dense.values))
                case "int8":
                    ours.append(pack_native(kernels, to_blocks8(dense), None, gated=False))
                    theirs.append(PackedInt8Matrix(dense, None))
                case _:
                    blocks = to_blocks4(dense)
                    ours.append(pack_native(kernels, blocks, None, gated=False))
                    theirs.append(PackedInt4Matrix(blocks, None))
    inputs = {width: torch.randn(rows, width) for _, width in SIZES}
    widths = [width for _, width in SIZES] * LAYERS

    def run(matrices: Sequence[Matrix]) -> None:
        for matrix, width in zip(matrices, widths, strict=True):
            matrix.linear(inputs[width])

    return _compare(
        f"linear {precision}, {rows} rows", rounds, lambda: run(ours), lambda: run(theirs)
    )


def measure_attention(kernels: NativeKernels, batch: int, context: int, rounds: int) -> Row:
    """One token for each of `batch` sequences that hold `context` tokens with it."""
    blocks = -(-context // BLOCK_TOKENS)
    group = KVGroup("full", GroupKind.FULL, BLOCK_TOKENS, batch * blocks + 1)
    plan = KVPlan((group,), (tuple(range(LAYERS)),), 0, context)
    backend = NativeAttention(kernels, [SHAPE] * LAYERS, plan, torch.bfloat16)
    order = np.random.default_rng(1).permutation(batch * blocks).astype(np.int32) + 1
    backend.bind((order.reshape(batch, blocks),))
    rotation = Rotation(
        build_rotary(
            head_size=SHAPE.head_size,
            theta=1e4,
            scaling=None,
            positions=context,
            device=torch.device("cpu"),
        )
    )
    width = (SHAPE.query_heads + 2 * SHAPE.kv_heads) * SHAPE.head_size
    for sequence in range(batch):
        step = backend.open(_batch([sequence], 0, context))
        for layer in range(LAYERS):
            step.attend(layer, torch.randn(context, width), rotation)
    decode = _batch(list(range(batch)), context - 1, context)
    qkv = torch.randn(batch, width)
    heads = (batch, SHAPE.kv_heads, context, SHAPE.head_size)
    keys = [torch.randn(heads, dtype=torch.bfloat16) for _ in range(LAYERS)]
    values = [torch.randn(heads, dtype=torch.bfloat16) for _ in range(LAYERS)]
    grouped = (batch, SHAPE.kv_heads, SHAPE.query_heads // SHAPE.kv_heads, SHAPE.head_size)
    queries = torch.randn(grouped, dtype=torch.bfloat16)

    def ours() -> None:
        step = backend.open(decode)
        for layer in range(LAYERS):
            step.attend(layer, qkv.clone(), rotation)

    def theirs() -> None:
        for key, value in zip(keys, values, strict=True):
            functional.scaled_dot_product_attention(queries, key, value)

    return _compare(f"attention, {batch} × {context} tokens", rounds, ours, theirs)


def _batch(rows: list[int], start: int, end: int) -> StepBatch:
    count = end - start
    return StepBatch(
        token_ids=torch.zeros(len(rows) * count, dtype=torch.int64),
        sample_rows=torch.zeros(0, dtype=torch.int64),
        sampling=[],
        positions=np.tile(np.arange(start, end, dtype=np.int32), len(rows)),
        starts=np.arange(len(rows) + 1, dtype=np.int32) * np.int32(count),
        contexts=np.full(len(rows), end, dtype=np.int32),
        rows=np.array(rows, dtype=np.int32),
    )


def _compare(
    what: str, rounds: int, ours: Callable[[], object], theirs: Callable[[], object]
) -> Row:
    times: tuple[list[float], list[float]] = ([], [])
    for number in range(rounds + 2):
        for side, run in zip(times, (ours, theirs), strict=True):
            began_s = time.perf_counter()
            run()
            if number >= 2:  # the first ones warm caches up
                side.append(1000 * (time.perf_counter() - began_s))
    return Row(what, *map(statistics.median, times))


def _processor() -> str:
    lines = Path("/proc/cpuinfo").read_text().splitlines()
    return next(line.partition(":")[2].strip() for line in lines if "model name" in line)


def _commit() -> str:
    command = ["git", "describe", "--always", "--dirty"]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=15)
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    kernels = load_kernels(resolve().cache_dir)
    kernels.set_threads(options.threads)
    rows: list[Row] = []
    with torch.inference_mode():
        for precision in ("bf16", "int8", "int4"):
            for count in (1, 4, 16, 256):
                rows.append(measure_linear(kernels, precision, count, options.rounds))
        for batch, context in ((1, 192), (16, 192), (1, 1500), (4, 1500)):
            rows.append(measure_attention(kernels, batch, context, options.rounds))
    print(
        f"{_processor()}, {options.threads} threads, Python {platform.python_version()}, ", end=""
    )
    print(f"torch {torch.__version__}, commit {_commit()}, load {os.getloadavg()[0]:.1f}\n")
    print("| what | ours, ms | torch, ms | torch / ours |\n|---|---|---|---|")
    for row in rows:
        ratio = row.torch_ms / row.ours_ms
        print(f"| {row.what} | {row.ours_ms:.2f} | {row.torch_ms:.2f} | {ratio:.1f} |")


if __name__ == "__main__":
    main()
