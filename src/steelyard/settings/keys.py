"""Every key of the deployment file: its path, type in words, default and description.

Read off the pydantic models once, so that layers, messages, the command line and the reference
cannot disagree with them.
"""

import functools
import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any, get_args, get_origin

from steelyard.settings._section import Section
from steelyard.settings.deployment import Deployment
from steelyard.settings.quantities import LARGEST_BYTES, Size, format_bytes

__all__ = ["ANY", "Key", "Path", "dotted", "find_key", "is_name", "keys", "pattern", "sections"]

Path = tuple[str, ...]
"""Where a value lives: `("gateway", "port")`."""

ANY = "NAME"
"""Stands for a name that the file makes up: `tenants.named.NAME.max_tokens`."""

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._:@/+-]{0,127}")


@dataclass(frozen=True, slots=True)
class Key:
    """One value that a deployment has."""

    path: Path
    description: str
    default: object
    expects: str
    """The type in words, to go after "expected": `auto or a whole number from 1 to 1024`."""
    types: frozenset[str]
    """JSON types it may have: `integer`, `number`, `string`, `boolean`, `array`, `null`."""
    is_size: bool
    """True when integers are bytes."""

    @property
    def name(self) -> str:
        return dotted(self.path)

    def show(self, value: object) -> str:
        """`value` as it would be written in the file."""
        if value is None:
            return "null"
        if isinstance(value, bool):
            return str(value).lower()
        if self.is_size and isinstance(value, int):
            return format_bytes(value)
        if isinstance(value, float):
            return str(value).removesuffix(".0")
        if isinstance(value, tuple):
            return "[" + ", ".join(str(entry) for entry in value) + "]"
        return str(value)


def dotted(path: Path) -> str:
    """`gateway.port`."""
    return ".".join(path)


@functools.cache
def keys() -> dict[Path, Key]:
    """All keys by path, in the order of the file; made-up names are `ANY`."""
    return {key.path: key for key in _keys_of(Deployment, ())}


@functools.cache
def sections() -> dict[Path, str]:
    """The description of every section by path; the root is not among them."""
    return dict(_sections_of(Deployment, ()))


def find_key(path: Path) -> Key | None:
    """The key of `path`, with the names it has there; None when it is no key."""
    key = keys().get(pattern(path))
    return key if key is None or key.path == path else replace(key, path=path)


def pattern(path: Path) -> Path:
    """`path` with `ANY` for the names that the file made up."""
    for length in range(1, len(path)):
        if (*path[:length], ANY) in sections():
            return (*path[:length], ANY, *path[length + 1 :])
    return path


def is_name(text: str) -> bool:
    """True for what the file may call a tenant or a plan."""
    return _NAME.fullmatch(text) is not None


def _keys_of(section: type[Section], at: Path) -> Iterator[Key]:
    schemas = section.model_json_schema()["properties"]
    for name, field in section.model_fields.items():
        path = (*at, name)
        if (inner := _as_section(field.annotation)) is not None:
            yield from _keys_of(inner, path)
            continue
        if (inner := _as_named_sections(field.annotation)) is not None:
            yield from _keys_of(inner, (*path, ANY))
            continue
        schema = schemas[name]
        yield Key(
            path=path,
            description=_one_line(field.description),
            default=field.default,
            expects=_in_words(schema),
            types=frozenset(_types(schema)),
            is_size=any(isinstance(mark, Size) for mark in _marks(field.annotation, field)),
        )


def _sections_of(section: type[Section], at: Path) -> Iterator[tuple[Path, str]]:
    for name, field in section.model_fields.items():
        if (inner := _as_section(field.annotation)) is not None:
            yield (*at, name), _one_line(inner.__doc__)
            yield from _sections_of(inner, (*at, name))
        elif (inner := _as_named_sections(field.annotation)) is not None:
            yield (*at, name), _one_line(field.description)
            yield (*at, name, ANY), _one_line(inner.__doc__)


def _as_section(annotation: object) -> type[Section] | None:
    is_section = isinstance(annotation, type) and issubclass(annotation, Section)
    return annotation if is_section else None  # type: ignore[return-value]


def _as_named_sections(annotation: object) -> type[Section] | None:
    """The section of which there may be many, each under a name."""
    return _as_section(get_args(annotation)[1]) if get_origin(annotation) is dict else None


def _one_line(text: str | None) -> str:
    assert text, "every key and every section carries a docstring"
    return " ".join(text.split())


def _marks(annotation: object, field: Any) -> Iterator[object]:
    """Everything that stands in `Annotated[...]` anywhere in the type."""
    yield from field.metadata
    for argument in get_args(annotation):
        yield from getattr(argument, "__metadata__", ())


def _types(schema: dict[str, Any]) -> Iterator[str]:
    for choice in schema.get("anyOf", [schema]):
        yield choice["type"]


def _in_words(schema: dict[str, Any]) -> str:
    choices = schema.get("anyOf", [])
    if any("examples" in choice for choice in choices):  # a size: an integer or a text
        words = (_size_in_words(c) if c["type"] == "integer" else _in_words(c) for c in choices)
        return " or ".join(word for word in words if word != "text")
    if choices:
        return " or ".join(_in_words(choice) for choice in choices)
    if "const" in schema:
        return str(schema["const"])
    if "enum" in schema:
        *most, last = (str(choice) for choice in schema["enum"])
        return f"{', '.join(most)} or {last}"
    match schema["type"]:
        case "integer":
            return f"a whole number {_bounds(schema)}"
        case "number":
            return f"a number {_bounds(schema)}"
        case "boolean":
            return "true or false"
        case "array":
            return "a list of texts"
        case "null":
            return "null"
    return "text"


def _size_in_words(schema: dict[str, Any]) -> str:
    low, high = schema["minimum"], schema["maximum"]
    upper = f"to {format_bytes(high)}" if high < LARGEST_BYTES else "up, such as 512MiB"
    return f"a size from {format_bytes(low)} {upper}"


def _bounds(schema: dict[str, Any]) -> str:
    """`from 1 to 1024` or `above 0, at most 86400`: every number has bounds on both sides."""
    high = schema["maximum"]
    if "minimum" in schema:
        return f"from {schema['minimum']} to {high}"
    return f"above {schema['exclusiveMinimum']}, at most {high}"
