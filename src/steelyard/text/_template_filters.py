"""Jinja's filters, as far as chat templates use them, each with a meter in front.

A filter runs in one go, so its cost is bounded before it starts: iterables are counted as they are
consumed, values that are read as a whole are weighed, and arguments that multiply (widths, counts,
replacements) are worked out in `_template_guards`. Filters that are not in the table at the end do
not exist.
"""

import functools
import json
from collections.abc import Callable, Mapping
from typing import Any

from jinja2.filters import FILTERS

from steelyard.text._template_budget import (
    TemplateLimitExceeded,
    charge_chars,
    charge_steps,
    counted,
    require_room,
    require_weight,
)
from steelyard.text._template_guards import (
    ITEM_CHARS,
    charge_result,
    guard_join,
    guard_percent_format,
    guard_replace,
    guard_width,
)

__all__ = ["guarded_filters"]

_MAX_COMPARED_CHARS = 1_000_000
"""Of what is sorted: every item is compared several times over."""
_MAX_PRECISION = 100
_MAX_DIGITS = 4_300
_MAX_JSON_INDENT = 16
_MAX_JSON_SEPARATOR = 8

Guard = Callable[..., Any]
"""Takes a filter's value and arguments, charges for them, and gives the value to go on with."""


def guarded_filters() -> dict[str, Callable[..., Any]]:
    """The filters of an environment, by name."""
    found = {name: _guarded(FILTERS[name], guard) for name, guard in _GUARDS.items()}
    found["tojson"] = _tojson
    return found


def _guarded(original: Callable[..., Any], guard: Guard) -> Callable[..., Any]:
    leading = 1 if hasattr(original, "jinja_pass_arg") else 0  # Jinja's context, before the value

    @functools.wraps(original)
    def metered(*args: Any, **kwargs: Any) -> Any:
        charge_steps()
        head, value, rest = args[:leading], args[leading], args[leading + 1 :]
        value = guard(value, *rest, **kwargs)
        return charge_result(original(*head, value, *rest, **kwargs))

    return metered


def _tojson(
    value: Any,
    ensure_ascii: bool = False,
    indent: int | None = None,
    separators: tuple[str, str] | None = None,
    sort_keys: bool = False,
) -> str:
    """JSON without HTML escapes and with transformers' options, which model templates rely on."""
    charge_steps()
    weight = require_weight(value)
    if indent is not None:
        if not isinstance(indent, int) or not 0 <= indent <= _MAX_JSON_INDENT:
            raise TemplateLimitExceeded(f"it indents JSON by {indent!r}")
        require_room(weight + _indentation(value, indent))
    if separators is not None and max(map(len, separators)) > _MAX_JSON_SEPARATOR:
        raise TemplateLimitExceeded("it separates JSON by more than a few characters")
    text = json.dumps(
        value,
        ensure_ascii=ensure_ascii,
        indent=indent,
        separators=separators,
        sort_keys=sort_keys,
    )
    charge_chars(len(text))
    return text


def _indentation(value: Any, indent: int) -> int:
    """Characters of indentation: every item stands on a line of its own. The value was weighed."""
    chars, depth, level = 0, 0, [value]
    while level:
        following: list[Any] = []
        for item in level:
            if isinstance(item, dict):
                following.extend(item.values())
            elif isinstance(item, list | tuple):
                following.extend(item)
        depth += 1
        chars += (len(following) + len(level)) * (depth * indent + 1)
        level = following
    return chars


def _free(value: Any, *arguments: Any, **named: Any) -> Any:
    """Costs nothing that the value has not cost already."""
    require_weight([*arguments, *named.values()])
    return value


def _whole(value: Any, *arguments: Any, **named: Any) -> Any:
    """Reads the value and its arguments as a whole."""
    require_weight([value, *arguments, *named.values()])
    return value


def _one_by_one(value: Any, *arguments: Any, **named: Any) -> Any:
    """Goes through the items; arguments may be compared with each."""
    require_weight([*arguments, *named.values()])
    return counted(value)


def _listed(value: Any, *_: Any, **__: Any) -> Any:
    items = list(counted(value))
    require_room(len(items) * ITEM_CHARS)
    return items


def _compared(value: Any, *_: Any, **__: Any) -> Any:
    items = _listed(value)
    require_weight(items, _MAX_COMPARED_CHARS)
    return items


def _compared_object(value: Any, *_: Any, **__: Any) -> Any:
    require_weight(value, _MAX_COMPARED_CHARS)
    return value


def _reversed(value: Any) -> Any:
    return value if isinstance(value, str | list | tuple | Mapping | range) else _listed(value)


def _joined(value: Any, d: Any = "", attribute: Any = None) -> Any:
    items = _listed(value)
    guard_join(d, items)
    return items


def _summed(value: Any, attribute: Any = None, start: Any = 0) -> Any:
    if not isinstance(start, int | float):
        raise TemplateLimitExceeded("it adds up something other than numbers")
    return counted(value)


def _centred(value: Any, width: Any = 80) -> Any:
    guard_width(width)
    return _whole(value)


def _indented(value: Any, width: Any = 4, first: Any = False, blank: Any = False) -> Any:
    weight = require_weight(value)
    guard_width(width)
    pad = require_weight(width) if isinstance(width, str) else int(width)
    lines = value.count("\n") + 1 if isinstance(value, str) else weight
    require_room(weight + lines * pad)
    return value


def _batched(value: Any, count: Any, fill_with: Any = None) -> Any:
    guard_width(count)
    return counted(value)


def _replaced(value: Any, old: Any, new: Any, count: Any = None) -> Any:
    guard_replace(value, old, new)
    return value


def _formatted(value: Any, *arguments: Any, **named: Any) -> Any:
    require_weight(value)
    guard_percent_format(str(value), named or arguments)
    return value


def _rounded(value: Any, precision: Any = 0, method: Any = "common") -> Any:
    if isinstance(precision, int) and abs(precision) > _MAX_PRECISION:
        raise TemplateLimitExceeded(f"it rounds to {precision} digits")
    return value


def _parsed(value: Any, *_: Any, **__: Any) -> Any:
    if isinstance(value, str) and len(value) > _MAX_DIGITS:
        raise TemplateLimitExceeded("it reads an enormous number")
    return value


_GUARDS: dict[str, Guard] = {
    **dict.fromkeys(("abs", "attr", "count", "d", "default", "first", "items", "last"), _free),
    "length": _free,
    **dict.fromkeys(("capitalize", "e", "escape", "forceescape", "lower", "safe"), _whole),
    **dict.fromkeys(("string", "title", "trim", "truncate", "upper", "urlencode"), _whole),
    "wordcount": _whole,
    **dict.fromkeys(("map", "reject", "rejectattr", "select", "selectattr"), _one_by_one),
    **dict.fromkeys(("groupby", "max", "min", "sort", "unique"), _compared),
    **dict.fromkeys(("batch", "slice"), _batched),
    **dict.fromkeys(("float", "int"), _parsed),
    "center": _centred,
    "dictsort": _compared_object,
    "format": _formatted,
    "indent": _indented,
    "join": _joined,
    "list": _listed,
    "replace": _replaced,
    "reverse": _reversed,
    "round": _rounded,
    "sum": _summed,
}
