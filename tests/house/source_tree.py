"""The project's files as the house tests see them: what git tracks or would track."""

import ast
import functools
import subprocess
from dataclasses import dataclass
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SOURCES = ROOT / "src"


@dataclass(frozen=True, slots=True)
class Module:
    """A module of the package, parsed."""

    path: Path
    name: str
    """Dotted, as it is imported."""
    tree: ast.Module

    @property
    def where(self) -> str:
        """For messages."""
        return str(self.path.relative_to(ROOT))


@functools.cache
def files(*suffixes: str) -> tuple[Path, ...]:
    """Files of the project with one of these suffixes; all when none is given."""
    command = ["git", "ls-files", "--cached", "--others", "--exclude-standard", "-z"]
    try:
        listed = subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True)
    except (OSError, subprocess.CalledProcessError):
        pytest.skip("this is no git checkout, so what belongs to the project is unknown")
    paths = (ROOT / name for name in listed.stdout.split("\0") if name)
    return tuple(sorted(p for p in paths if p.is_file() and (not suffixes or p.suffix in suffixes)))


@functools.cache
def modules() -> tuple[Module, ...]:
    """Every Python module below `src`."""
    found = []
    for path in files(".py"):
        if path.is_relative_to(SOURCES):
            parts = path.relative_to(SOURCES).with_suffix("").parts
            name = ".".join(parts[:-1] if parts[-1] == "__init__" else parts)
            found.append(Module(path, name, ast.parse(path.read_text())))
    assert len(found) > 100, "the source tree was not found"
    return tuple(found)


Function = ast.FunctionDef | ast.AsyncFunctionDef


def functions(tree: ast.AST) -> list[Function]:
    """Every function and method, nested ones included."""
    return [node for node in ast.walk(tree) if isinstance(node, Function)]
