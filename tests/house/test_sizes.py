"""Files stop at 500 lines and functions at 60, docstring apart: what is longer has two subjects."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

from .source_tree import ROOT, Function, files, functions, modules

FILE_LINES = 500
FUNCTION_LINES = 60


def test_no_file_exceeds_500_lines() -> None:
    lines = {path: len(path.read_text().splitlines()) for path in files(".py", ".h", ".cpp")}
    assert not {str(p.relative_to(ROOT)): n for p, n in lines.items() if n > FILE_LINES}


def test_no_python_function_exceeds_60_lines() -> None:
    found = [
        f"{path.relative_to(ROOT)}:{function.name}: {body_lines(function)}"
        for path in files(".py")
        if not path.is_relative_to(ROOT / "tests")
        for function in functions(ast.parse(path.read_text()))
        if body_lines(function) > FUNCTION_LINES
    ]
    assert not found


def test_no_cpp_function_exceeds_60_lines() -> None:
    sources = files(".h", ".cpp")
    lengths = {path: list(cpp_function_lines(path)) for path in sources}
    assert sum(map(len, lengths.values())) > 50, "the C++ functions were not found"
    assert not {p.name: n for p, all_n in lengths.items() for n in all_n if n > FUNCTION_LINES}


def test_no_function_takes_more_than_five_positional_parameters() -> None:
    found = [
        f"{module.where}:{function.name}"
        for module in modules()
        for function in functions(module.tree)
        if len(positional(function)) > 5 and module.name not in _FOREIGN_SIGNATURES
    ]
    assert not found


_FOREIGN_SIGNATURES = {"steelyard.models.native.interface"}
"""Describes the C++ module, whose constructors take positions."""


def positional(function: Function) -> list[str]:
    """Parameters that can be given by position, `self` apart."""
    names = [argument.arg for argument in function.args.posonlyargs + function.args.args]
    return [name for name in names if name not in ("self", "cls")]


def body_lines(function: Function) -> int:
    body = function.body[1:] if ast.get_docstring(function) else function.body
    return (body[-1].end_lineno or 0) - body[0].lineno + 1 if body else 0


_CPP_NOISE = re.compile(
    "|".join(
        (
            r"//[^\n]*",
            r"/\*.*?\*/",
            r"^ *#(?:\\\n|[^\n])*",
            r'"(?:\\.|[^"\\\n])*"',
            r"'(?:\\.|[^'\\\n])+'",
        )
    ),
    re.DOTALL | re.MULTILINE,
)
"""Comments, preprocessor lines and literals."""
_CPP_SCOPE = re.compile(r"\b(namespace|class|struct|enum|union|extern)\b")


def cpp_function_lines(path: Path) -> Iterator[int]:
    """Lines between the braces of each function that is not inside another one."""
    text = _CPP_NOISE.sub(lambda match: "\n" * match[0].count("\n"), path.read_text())
    open_scopes: list[int | None] = []
    """Line of the brace for a function; None for a namespace, a class or what is in a function."""
    header_start = 0
    for match in re.finditer(r"[{};]", text):
        line = text.count("\n", 0, match.start())
        if match[0] == "{":
            header = text[header_start : match.start()]
            is_inside = any(scope is not None for scope in open_scopes)
            is_function = ")" in header and not _CPP_SCOPE.search(header.partition("(")[0])
            open_scopes.append(line if is_function and not is_inside else None)
        elif match[0] == "}" and (begun := open_scopes.pop()) is not None:
            yield line - begun - 1
        header_start = match.end()
