"""Shared tools: a deployment file in a temporary folder, and an environment without surprises."""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import pytest

from steelyard.settings import Examination, Flag, Problem, examine

WriteFile = Callable[[str | bytes], Path]


@pytest.fixture
def write_file(tmp_path: Path) -> WriteFile:
    def write(content: str | bytes) -> Path:
        path = tmp_path / "deploy.yaml"
        data = content.encode() if isinstance(content, str) else content
        path.write_bytes(data)
        return path

    return write


class Examiner:
    """`examine` in an empty environment; a file is given as its text."""

    def __init__(self, write: WriteFile) -> None:
        self._write = write

    def __call__(
        self,
        file: str | bytes | None = None,
        *,
        sets: Sequence[str] = (),
        flags: Sequence[Flag] = (),
        environ: Mapping[str, str] | None = None,
    ) -> Examination:
        path = None if file is None else self._write(file)
        return examine(file=path, sets=sets, flags=flags, environ=environ or {})

    def problem(self, file: str | bytes | None = None, **layers: object) -> Problem:
        """The only problem there is."""
        problems = self(file, **layers).problems  # type: ignore[arg-type]
        assert len(problems) == 1, [str(problem) for problem in problems]
        return problems[0]


@pytest.fixture
def examined(write_file: WriteFile) -> Examiner:
    return Examiner(write_file)
