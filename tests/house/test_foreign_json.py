"""JSON of others can be wrong in three ways; whoever catches one of them catches all.

Text that is no JSON, bytes that are no UTF-8, and brackets nested so deeply that the decoder gives
up: msgspec raises an error of its own for each.
"""

import ast
from collections.abc import Iterator

from .source_tree import modules

_JSON_ERRORS = {"msgspec.DecodeError", "msgspec.MsgspecError", "json.JSONDecodeError"}
_EXEMPT = {
    "steelyard.engine.process": "reads what its own parent has just written",
    "steelyard.gateway.api.fields": "reads up to 64 bytes, which a schema has let through before",
}


def test_whoever_expects_broken_json_expects_deep_nesting_too() -> None:
    found = [
        f"{module.where}:{line}"
        for module in modules()
        if module.name not in _EXEMPT
        for line in _incomplete(module.tree)
    ]
    assert not found, "catch RecursionError as well"


def test_incomplete_handlers_are_recognised() -> None:
    for body in (
        "try:\n  f()\nexcept msgspec.MsgspecError:\n  g()",
        "try:\n  f()\nexcept (OSError, msgspec.DecodeError):\n  g()",
        "with contextlib.suppress(msgspec.MsgspecError):\n  f()",
    ):
        assert list(_incomplete(ast.parse(body))), body
    for body in (
        "try:\n  f()\nexcept (msgspec.MsgspecError, RecursionError):\n  g()",
        "try:\n  f()\nexcept msgspec.DecodeError:\n  g()\nexcept RecursionError:\n  h()",
    ):
        assert not list(_incomplete(ast.parse(body))), body


def _incomplete(tree: ast.AST) -> Iterator[int]:
    """Lines of handlers that miss the third way."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Try):
            caught = {name for handler in node.handlers for name in _names(handler.type)}
        elif isinstance(node, ast.Call) and ast.unparse(node.func) == "contextlib.suppress":
            caught = {name for argument in node.args for name in _names(argument)}
        else:
            continue
        if caught & _JSON_ERRORS and "RecursionError" not in caught:
            yield node.lineno


def _names(caught: ast.expr | None) -> set[str]:
    entries = caught.elts if isinstance(caught, ast.Tuple) else [caught]
    return {ast.unparse(entry) for entry in entries if entry is not None}
