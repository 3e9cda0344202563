"""The methods of texts, lists and objects that a chat template may call.

A list of what is known to be harmless, not of what is known to be harmful: everything else is
refused. Those that multiply their input are charged beforehand.
"""

from types import BuiltinMethodType, MethodType
from typing import Any

from jinja2.exceptions import SecurityError
from jinja2.runtime import LoopContext
from jinja2.utils import Cycler

from steelyard.text._template_budget import counted, require_weight
from steelyard.text._template_guards import guard_join, guard_replace, guard_width

__all__ = ["guard_method"]

_TEXT_METHODS = frozenset(
    "capitalize casefold count endswith find index isalnum isalpha isascii isdecimal isdigit "  # noqa: SIM905
    "isidentifier islower isnumeric isprintable isspace istitle isupper lower lstrip partition "
    "removeprefix removesuffix rfind rindex rpartition rsplit rstrip split splitlines startswith "
    "strip swapcase title upper".split()
)
_PADDING_METHODS = frozenset(("center", "ljust", "rjust", "zfill"))
_METHODS: dict[type, frozenset[str]] = {
    dict: frozenset(("copy", "get", "items", "keys", "values")),
    list: frozenset(("copy", "count", "index")),
    tuple: frozenset(("count", "index")),
    float: frozenset(("is_integer",)),
}
_OWNERS_OF_JINJA = (LoopContext, Cycler)


def guard_method(
    method: BuiltinMethodType | MethodType, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> tuple[Any, ...]:
    """Check a call of a method; returns the positional arguments to go on with.

    Raises `SecurityError` for methods that are not listed, `TemplateLimitExceeded` for results
    that would be too large.
    """
    owner, name = method.__self__, method.__name__
    require_weight([*args, *kwargs.values()])
    if isinstance(owner, str):
        return _guard_text_method(owner, name, args)
    if isinstance(owner, _OWNERS_OF_JINJA):
        return args
    if name not in _METHODS.get(type(owner), ()):
        raise SecurityError(f"the method {name!r} of {type(owner).__name__} is not available")
    if name in ("count", "index"):
        require_weight(owner)
    return args


def _guard_text_method(text: str, name: str, args: tuple[Any, ...]) -> tuple[Any, ...]:
    if name in _TEXT_METHODS:
        return args
    if name in _PADDING_METHODS:
        guard_width(args[0] if args else 0)
        return args
    if name == "join" and len(args) == 1:
        items = list(counted(args[0]))
        guard_join(text, items)
        return (items,)
    if name == "replace" and len(args) >= 2:
        guard_replace(text, args[0], args[1])
        return args
    raise SecurityError(f"the method {name!r} of str is not available in this form")
