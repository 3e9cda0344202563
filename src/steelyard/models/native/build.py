"""Compiles the C++ kernels once per machine type and loads them.

The result lies in `<cache>/kernels/<key>/`, where the key covers the sources, the flags, torch's
and Python's versions and the processor's features, so that a shared cache folder never hands out
code for another processor. A finished build is loaded without asking the build tools again.
"""

import fcntl
import hashlib
import importlib.util
import logging
import os
import platform
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import cast

import torch

from steelyard.models.native.interface import NativeKernels

__all__ = ["KernelsUnavailable", "kernels_are_built", "load_kernels"]

log = logging.getLogger(__name__)

_NAME = "steelyard_kernels"
_SOURCES = Path(__file__).parent / "csrc"
_FLAGS = (
    "-O3",
    "-march=native",
    "-std=c++20",
    # A row's result must not depend on which kernel variant its batch size chose.
    "-ffp-contract=off",
    "-fno-math-errno",
    # GCC 12's own AVX-512 headers warn about themselves.
    "-w",
)


class KernelsUnavailable(Exception):
    """The kernels can neither be found nor compiled here; the message says why."""


def kernels_are_built(cache_dir: Path) -> bool:
    """True when `load_kernels` will not have to compile."""
    return _stamp(_build_dir(cache_dir)).exists()


def load_kernels(cache_dir: Path) -> NativeKernels:
    """The compiled module; compiling takes about half a minute, once.

    Raises `KernelsUnavailable` when there is no compiler or it fails.
    """
    folder = _build_dir(cache_dir)
    try:
        if not _stamp(folder).exists():  # a finished build may lie in a read-only folder
            with _exclusive(folder):
                if not _stamp(folder).exists():
                    log.info("compiling the CPU kernels, once, into %s", folder)
                    _compile(folder)
        return _import(_library(folder))
    except (OSError, ImportError, RuntimeError) as error:
        raise KernelsUnavailable(f"no compiled kernels in {folder}: {error}") from error


def _compile(folder: Path) -> None:
    from torch.utils import cpp_extension  # imports build tools; needed only here

    # A build that was killed leaves torch's own lock file behind, and torch would wait for it for
    # ever. The lock we hold makes it safe to remove.
    (folder / "lock").unlink(missing_ok=True)
    # Half a library, of a linker that was killed or had no space left, must not pass for a whole.
    _library(folder).unlink(missing_ok=True)
    compiler = shlex.split(cpp_extension.get_cxx_compiler())  # type: ignore[no-untyped-call]
    if not compiler or shutil.which(compiler[0]) is None:
        raise KernelsUnavailable(
            f"there is no C++ compiler ({' '.join(compiler) or 'CXX is empty'})"
        )
    try:
        with _ninja_on_path():
            cpp_extension.load(
                name=_NAME,
                sources=sorted(str(path) for path in _SOURCES.glob("*.cpp")),
                extra_cflags=list(_FLAGS),
                build_directory=str(folder),
            )
    except (RuntimeError, subprocess.SubprocessError) as error:  # with all the compiler said
        report = folder / "build.log"
        report.write_text(str(error))
        raise KernelsUnavailable(f"the C++ compiler failed, see {report}") from error
    _stamp(folder).touch()


def _import(library: Path) -> NativeKernels:
    spec = importlib.util.spec_from_file_location(_NAME, library)
    if spec is None or spec.loader is None:
        raise ImportError(f"{library} is not an extension module")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return cast(NativeKernels, module)


def _library(folder: Path) -> Path:
    return folder / f"{_NAME}.so"


def _stamp(folder: Path) -> Path:
    """A file that is there once the library is complete."""
    return folder / "complete"


def _build_dir(cache_dir: Path) -> Path:
    digest = hashlib.sha256()
    parts = [*_FLAGS, torch.__version__, sys.version, platform.machine(), _processor_features()]
    for part in parts:
        digest.update(part.encode() + b"\0")
    for path in sorted(_SOURCES.iterdir()):
        digest.update(path.name.encode() + b"\0" + path.read_bytes())
    return cache_dir / "kernels" / digest.hexdigest()[:16]


def _processor_features() -> str:
    """What `-march=native` depends on; empty where the system does not tell."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return ""
    wanted = ("model name", "flags", "Features")
    first = (next((line for line in lines if line.startswith(start)), "") for start in wanted)
    return "\n".join(first)


@contextmanager
def _ninja_on_path() -> Iterator[None]:
    """torch looks for `ninja` on PATH; ours lies beside an interpreter that nobody activated."""
    before = os.environ.get("PATH", os.defpath)
    os.environ["PATH"] = os.pathsep.join([before, str(Path(sys.executable).parent)])
    try:
        yield
    finally:
        os.environ["PATH"] = before


@contextmanager
def _exclusive(folder: Path) -> Iterator[None]:
    """One process compiles; the others wait and find the result."""
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / "steelyard.lock").open("w") as handle:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield
