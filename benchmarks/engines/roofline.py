"""The machine's own bounds: memory bandwidth and rates of dot products, measured.

A small C++ program is compiled with the system's compiler and run. Where there is none, or where
the program knows no dot products of this processor, torch's products of large matrices stand in;
those are no upper bound, and `method` says so.
"""

import shutil
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import msgspec
import numpy as np
from benchmarks.engines.engine import Dot

__all__ = ["Roofline", "measure_roofline", "parse_rates"]

_SOURCE = Path(__file__).with_name("roofline.cpp")
_BUFFER_MIB = 512
_MATRIX = 2048


class Roofline(msgspec.Struct, frozen=True):
    """Bytes and operations per second, on `threads` threads."""

    threads: int
    bytes_per_s: float
    rates: dict[str, float]
    """`Dot` → operations per second."""
    method: str

    def operations_per_s(self, dot: Dot) -> float:
        """Of a kind of dot product; float32's where the machine has none of that kind."""
        return self.rates.get(dot, self.rates["fp32"])


def measure_roofline(threads: int, work_dir: Path) -> Roofline:
    """Takes a few seconds; the machine should be idle."""
    compiler = shutil.which("c++") or shutil.which("g++") or shutil.which("clang++")
    rates = {} if compiler is None else _run_program(compiler, threads, work_dir)
    bandwidth = rates.pop("bytes", None)
    if bandwidth is not None and "fp32" in rates:
        method = "C++: reads of a 512 MiB buffer on huge pages; dot products on registers"
        return Roofline(threads, bandwidth, rates, method)
    method = "torch: products of 2048 x 2048 matrices; numpy or C++: reads of a 512 MiB buffer"
    return Roofline(threads, bandwidth or _numpy_bandwidth(), _torch_rates(threads), method)


def parse_rates(output: str) -> dict[str, float]:
    """`name value` per line."""
    pairs = [line.split() for line in output.splitlines() if line.strip()]
    return {name: float(value) for name, value in pairs}


def _run_program(compiler: str, threads: int, work_dir: Path) -> dict[str, float]:
    program = work_dir / "roofline"
    flags = ["-O3", "-march=native", "-std=c++20", "-pthread"]
    build = [compiler, *flags, str(_SOURCE), "-o", str(program)]
    subprocess.run(build, check=True, capture_output=True)
    run = [str(program), str(threads), str(_BUFFER_MIB)]
    return parse_rates(subprocess.run(run, check=True, capture_output=True, text=True).stdout)


def _numpy_bandwidth() -> float:
    """One thread's, which is less than the machine's."""
    buffer = np.zeros(_BUFFER_MIB << 17, dtype=np.int64)
    return buffer.nbytes / _best_s(lambda: buffer.sum())


def _torch_rates(threads: int) -> dict[str, float]:
    import torch

    torch.set_num_threads(threads)
    floats = torch.ones(_MATRIX, _MATRIX)
    halves = floats.bfloat16()
    operations = 2 * _MATRIX**3
    return {
        "fp32": operations / _best_s(lambda: floats @ floats),
        "bf16": operations / _best_s(lambda: halves @ halves),
    }


def _best_s(work: Callable[[], object]) -> float:
    times = []
    for _ in range(5):
        began_s = time.perf_counter()
        work()
        times.append(time.perf_counter() - began_s)
    return min(times)
