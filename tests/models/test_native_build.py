"""`python -m steelyard.models.native` where the kernels cannot be compiled."""

import os
import subprocess
import sys
from pathlib import Path

import pytest


def build(cache_dir: Path, compiler: str) -> list[str]:
    """What it prints, line by line. A process of its own: build tools leave traces in a process."""
    variables = {"CXX": compiler, "STEELYARD_CACHE_DIR": str(cache_dir)}
    done = subprocess.run(
        [sys.executable, "-m", "steelyard.models.native"],
        capture_output=True,
        check=True,
        env=os.environ | variables,
        text=True,
    )
    return (done.stdout + done.stderr).splitlines()


@pytest.mark.parametrize("compiler", ["", "no-such-compiler -O2"])
def test_a_missing_compiler_is_named_in_one_line(compiler: str, tmp_path: Path) -> None:
    *_, warning = build(tmp_path, compiler)
    assert warning.startswith("warning: ")
    assert "there is no C++ compiler" in warning
    assert "Error" not in warning


def test_what_a_failing_compiler_said_is_kept_in_a_file(tmp_path: Path) -> None:
    broken = tmp_path / "broken-c++"
    broken.write_text('#!/bin/sh\necho "out of luck" >&2; exit 1\n')
    broken.chmod(0o755)
    *_, warning = build(tmp_path / "cache", str(broken))
    (report,) = (tmp_path / "cache").rglob("build.log")
    assert f"the C++ compiler failed, see {report}" in warning
    assert report.stat().st_size > 0
