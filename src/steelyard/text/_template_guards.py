"""Works out how large a result will be, before the operation that makes it is let loose.

Shared by filters (`_template_filters`) and by operators and methods (`_template_sandbox`). Every
guard raises `TemplateLimitExceeded` when an upper bound of the result does not fit the running
budget; what was really made is charged by `charge_result`.
"""

import re
import string
from collections.abc import Mapping
from typing import Any

from steelyard.text._template_budget import (
    TemplateLimitExceeded,
    charge_chars,
    require_room,
    require_weight,
)

__all__ = [
    "ITEM_CHARS",
    "MAX_INTEGER_BITS",
    "MAX_WIDTH",
    "charge_result",
    "guard_brace_format",
    "guard_join",
    "guard_percent_format",
    "guard_replace",
    "guard_width",
]

MAX_WIDTH = 9_999
"""Of anything that pads: more digits than that in a format are refused unread."""
MAX_INTEGER_BITS = 8_192
ITEM_CHARS = 8
"""What an item of a list is charged: with the reference to it, about the memory of these."""

_LONG_NUMBER = re.compile(r"\d{5,}")
_STARRED_WIDTH = re.compile(r"%[-#0 +\d.]*\*")


def charge_result(value: Any) -> Any:
    """Charge what an operation has made; for results that are at most a few times their input."""
    if isinstance(value, str):
        charge_chars(len(value))
    elif isinstance(value, list | tuple):
        charge_chars(len(value) * ITEM_CHARS)
    elif isinstance(value, int) and value.bit_length() > MAX_INTEGER_BITS:
        raise TemplateLimitExceeded("it makes an enormous number")
    return value


def guard_width(width: Any) -> None:
    """For padding, batches and the like."""
    if isinstance(width, int) and abs(width) > MAX_WIDTH:
        raise TemplateLimitExceeded(f"it asks for a width of {width}, more than {MAX_WIDTH}")


def guard_join(separator: Any, items: list[Any]) -> None:
    """For texts put together with a separator."""
    require_room(require_weight(items) + require_weight(separator) * len(items))


def guard_replace(text: Any, old: Any, new: Any) -> None:
    """For every occurrence replaced; filters turn the three into texts first."""
    weight = require_weight(text) + require_weight(new)
    if isinstance(text, str) and isinstance(old, str) and isinstance(new, str):
        occurrences = text.count(old)
        require_room(len(text) + occurrences * max(len(new) - len(old), 0))
    else:
        require_room(weight * (require_weight(new) + 1))


def guard_percent_format(text: str, arguments: Any) -> None:
    """For `text % arguments`: each value of a tuple is used once, those of an object repeatedly."""
    if _LONG_NUMBER.search(text) or _STARRED_WIDTH.search(text):
        raise TemplateLimitExceeded("it formats to a width that is not plainly small")
    fields = text.count("%")
    uses = fields if isinstance(arguments, Mapping) else 1
    require_room(len(text) + fields * MAX_WIDTH + uses * require_weight(arguments))


def guard_brace_format(text: str, arguments: Any) -> None:
    """For `text.format(…)`. Malformed formats are left to the formatter's own error."""
    fields = 0
    for _, field, spec, _ in string.Formatter().parse(text):
        if field is None:
            continue
        fields += 1
        if spec and ("{" in spec or _LONG_NUMBER.search(spec)):
            raise TemplateLimitExceeded("it formats to a width that is not plainly small")
    require_room(len(text) + fields * (MAX_WIDTH + require_weight(arguments)))
