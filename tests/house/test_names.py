"""Names say what a thing is, and every module says what it is for and what it offers."""

import ast
import importlib

import pytest

from .source_tree import SOURCES, Module, files, modules

_VAGUE = {"common", "helper", "helpers", "misc", "util", "utils"}


def test_no_module_or_package_has_a_vague_name() -> None:
    for path in files(".py", ".h", ".cpp"):
        assert not _VAGUE & {part.removesuffix(path.suffix).strip("_") for part in path.parts}, path


@pytest.mark.parametrize("module", modules(), ids=lambda module: module.name)
def test_the_module_opens_with_what_it_does(module: Module) -> None:
    assert ast.get_docstring(module.tree), module.where


@pytest.mark.parametrize("module", modules(), ids=lambda module: module.name)
def test_what_the_module_offers_is_listed_in_order_and_exists(module: Module) -> None:
    if module.path.name == "__main__.py":  # a program offers nothing
        return
    listed = exported(module.tree)
    if listed is None:
        assert not public_definitions(module.tree), f"{module.where} has no __all__"
        return
    assert listed == sorted(set(listed), key=_order)
    imported = importlib.import_module(module.name)
    assert all(hasattr(imported, name) for name in listed)


def test_the_package_is_typed() -> None:
    assert (SOURCES / "steelyard" / "py.typed").is_file()


def exported(tree: ast.Module) -> list[str] | None:
    """The names in `__all__`; None when there is none."""
    for statement in tree.body:
        if isinstance(statement, ast.Assign) and "__all__" in map(ast.unparse, statement.targets):
            names: list[str] = ast.literal_eval(statement.value)
            return names
    return None


def public_definitions(tree: ast.Module) -> list[str]:
    """Functions and classes of the module that others may be tempted to use."""
    kinds = ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef
    names = [statement.name for statement in tree.body if isinstance(statement, kinds)]
    return [name for name in names if not name.startswith("_")]


def _order(name: str) -> tuple[int, str]:
    """Constants, then classes, then functions: as ruff sorts them."""
    return (0 if name.isupper() else 1 if name[0].isupper() else 2, name)
