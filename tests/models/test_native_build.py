"""What happens where the kernels cannot be compiled."""

from pathlib import Path

import pytest

from steelyard.models.native.build import KernelsUnavailable, load_kernels


@pytest.mark.parametrize("compiler", ["", "no-such-compiler -O2"])
def test_a_missing_compiler_is_named_in_one_line(
    compiler: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CXX", compiler)
    with pytest.raises(KernelsUnavailable, match="there is no C\\+\\+ compiler") as caught:
        load_kernels(tmp_path)
    assert "\n" not in str(caught.value)


def test_what_a_failing_compiler_said_is_kept_in_a_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    broken = tmp_path / "broken-c++"
    broken.write_text('#!/bin/sh\necho "out of luck" >&2; exit 1\n')
    broken.chmod(0o755)
    monkeypatch.setenv("CXX", str(broken))
    with pytest.raises(KernelsUnavailable, match=r"compiler failed, see .*build\.log") as caught:
        load_kernels(tmp_path / "cache")
    assert "\n" not in str(caught.value)
    (report,) = (tmp_path / "cache").rglob("build.log")
    assert report.stat().st_size > 0
