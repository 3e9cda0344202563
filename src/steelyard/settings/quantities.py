"""Sizes in bytes as people write them, and the number types that settings are made of.

Knows nothing of keys or layers; `sections` and `gateway` use these types, `problems` their texts.
"""

import re
from dataclasses import dataclass
from decimal import Decimal
from typing import Annotated, Any

from pydantic import Field, GetCoreSchemaHandler, GetJsonSchemaHandler
from pydantic_core import CoreSchema, core_schema

__all__ = [
    "LARGEST_BYTES",
    "BadValue",
    "Count",
    "Milliseconds",
    "Seconds",
    "Size",
    "format_bytes",
    "parse_bytes",
]


class BadValue(ValueError):
    """A value that its own validator refuses; reads after the value: "'4KiB' is less than 1MiB"."""

    def __init__(self, reason: str, fix: str = "") -> None:
        super().__init__(reason)
        self.reason = reason
        self.fix = fix
        """Empty when the type in words is all there is to say."""


Seconds = Annotated[float, Field(gt=0, le=86_400, allow_inf_nan=False)]
"""A duration that must pass; a day at most, because longer is a slip of units."""

Milliseconds = Annotated[float, Field(ge=0, le=600_000, allow_inf_nan=False)]
"""A delay that may be nothing; ten minutes at most."""

Count = Annotated[int, Field(ge=1, le=1_000_000)]
"""How many of something there may be: at least one."""

LARGEST_BYTES = 1024**5
"""No size of ours comes near; it stands for "no bound"."""

_UNITS = {"": 1, "B": 1} | {
    prefix + suffix: base**power
    for power, prefix in enumerate("KMGT", start=1)
    for suffix, base in (("iB", 1024), ("i", 1024), ("B", 1000))
}
_UNITS["kB"] = 1000
_PATTERN = r"^[0-9]+(\.[0-9]+)? ?([kKMGT]B|[KMGT]iB?|B)?$"
_NUMBER_AND_UNIT = re.compile(r"(?P<number>[0-9]{1,20}(?:\.[0-9]{1,20})?) ?(?P<unit>[A-Za-z]*)")


@dataclass(frozen=True, slots=True)
class Size:
    """Marks an `int` as a number of bytes that may be written as `512MiB`; bounds inclusive."""

    minimum: int
    maximum: int = LARGEST_BYTES

    def parse(self, value: object) -> int:
        """Bytes within the bounds; `BadValue` says what is wrong otherwise."""
        size_bytes = parse_bytes(value)
        if size_bytes < self.minimum:
            raise BadValue(f"is less than {format_bytes(self.minimum)}")
        if size_bytes > self.maximum:
            raise BadValue(f"is more than {format_bytes(self.maximum)}")
        return size_bytes

    def __get_pydantic_core_schema__(
        self, source: object, handler: GetCoreSchemaHandler
    ) -> CoreSchema:
        return core_schema.no_info_plain_validator_function(self.parse)

    def __get_pydantic_json_schema__(
        self, schema: CoreSchema, handler: GetJsonSchemaHandler
    ) -> dict[str, Any]:
        return {
            "anyOf": [
                {"type": "integer", "minimum": self.minimum, "maximum": self.maximum},
                {"type": "string", "pattern": _PATTERN, "examples": ["512MiB"]},
            ]
        }


def parse_bytes(value: object) -> int:
    """`8388608`, `8MiB`, `8Mi`, `8.5 MB` as a number of bytes.

    `K`, `M`, `G`, `T` alone mean 1000 to some programs and 1024 to others, so they are refused.
    """
    if isinstance(value, int) and not isinstance(value, bool):
        return value
    if not isinstance(value, str) or not (match := _NUMBER_AND_UNIT.fullmatch(value.strip())):
        raise BadValue("is not a size")
    number, unit = match["number"], match["unit"]
    if unit in _UNITS:
        return int(Decimal(number) * _UNITS[unit])
    if (prefix := unit.upper()) in {"K", "M", "G", "T"}:
        raise BadValue(
            f"has the ambiguous unit {unit}",
            f"write {number}{prefix}iB (times 1024) or {number}{prefix}B (times 1000)",
        )
    raise BadValue("has an unknown unit", "use KiB, MiB, GiB or TiB")


def format_bytes(size_bytes: int) -> str:
    """The shortest exact way to write a size: `512MiB`, `1536KiB`, `1000B`."""
    for power, prefix in reversed(list(enumerate("KMGT", start=1))):
        if size_bytes and size_bytes % 1024**power == 0:
            return f"{size_bytes // 1024**power}{prefix}iB"
    return f"{size_bytes}B"
