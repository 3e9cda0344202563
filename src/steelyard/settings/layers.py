"""Layers of settings: what one source says, key by key, and where it says it.

    defaults  <  file (`yaml_file`)  <  environment  <  --set  <  dedicated flags

A layer does not know which keys exist or what they may hold; `resolve` lays them over each other
and judges. Texts from the environment and from `--set` take the type of the key they are for.
"""

import enum
import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from steelyard.settings.keys import Key, Path, dotted, keys
from steelyard.settings.problems import Problem

__all__ = [
    "ENVIRONMENT_PREFIX",
    "FILE_VARIABLE",
    "Entry",
    "Flag",
    "Layer",
    "Source",
    "SourceKind",
    "from_environment",
    "from_flags",
    "from_sets",
    "variable_name",
]

ENVIRONMENT_PREFIX = "STEELYARD_"
FILE_VARIABLE = "STEELYARD_CONFIG"
"""Names the deployment file; it is not a setting itself."""


class SourceKind(enum.Enum):
    """Which layer a value comes from."""

    DEFAULT = "default"
    FILE = "file"
    ENVIRONMENT = "environment"
    FLAG = "flag"


@dataclass(frozen=True, slots=True)
class Source:
    """Where a value was said."""

    kind: SourceKind
    where: str = ""
    """`deploy.yaml:7`, `STEELYARD_GATEWAY__PORT`, `--port`; empty for a default."""

    def __str__(self) -> str:
        return self.where or self.kind.value


@dataclass(frozen=True, slots=True)
class Flag:
    """A dedicated command-line flag that stands for a key, such as `--port` for `gateway.port`."""

    path: str
    value: object
    """None means that the flag was not given."""
    name: str


@dataclass(frozen=True, slots=True)
class Entry:
    """One value for one path, which may or may not be a key."""

    path: Path
    value: object
    source: Source
    is_text: bool = False
    """True when `value` is a text that still has to take the key's type."""

    def typed(self, key: Key) -> object:
        """The value in the type of `key`; a text that does not fit stays a text."""
        if self.is_text and isinstance(self.value, str):
            return _typed(self.value, key)
        return self.value


@dataclass(slots=True)
class Layer:
    """What one source says, in its order, and what of it could not be read."""

    entries: list[Entry] = field(default_factory=list)
    problems: list[Problem] = field(default_factory=list)


def variable_name(path: Path) -> str:
    """`STEELYARD_GATEWAY__PORT`."""
    return ENVIRONMENT_PREFIX + "__".join(path).upper()


def from_environment(environ: Mapping[str, str]) -> Layer:
    """Every `STEELYARD_…` variable; an empty one counts as not set."""
    layer = Layer()
    for name in sorted(environ):
        text = environ[name]
        if not name.startswith(ENVIRONMENT_PREFIX) or name == FILE_VARIABLE or not text:
            continue
        if _is_service_link(name, text):
            continue
        path = tuple(name.removeprefix(ENVIRONMENT_PREFIX).lower().split("__"))
        source = Source(SourceKind.ENVIRONMENT, name)
        layer.entries.append(Entry(path, text, source, is_text=True))
    return layer


def from_sets(texts: Iterable[str]) -> Layer:
    """The values of repeated `--set key.path=value`; of equal keys the last one counts."""
    layer = Layer()
    for text in texts:
        name, equals, value = text.partition("=")
        path = tuple(name.strip().split("."))
        if not equals or not all(path):
            # The text is not echoed: what stands for a key here may be a secret.
            layer.problems.append(
                Problem("--set", "is not of the form key.path=value", "--set gateway.port=9000")
            )
            continue
        source = Source(SourceKind.FLAG, f"--set {dotted(path)}")
        layer.entries.append(Entry(path, value, source, is_text=True))
    return layer


def from_flags(flags: Iterable[Flag]) -> Layer:
    """The dedicated flags that were given. Their paths are ours, so a wrong one is a bug."""
    layer = Layer()
    for flag in flags:
        path = tuple(flag.path.split("."))
        assert path in keys(), f"{flag.name} stands for {flag.path}, which is no key"
        if flag.value is not None:
            is_text = isinstance(flag.value, str)
            source = Source(SourceKind.FLAG, flag.name)
            layer.entries.append(Entry(path, flag.value, source, is_text))
    return layer


_BOOLEANS = {"true": True, "yes": True, "on": True, "1": True} | {
    "false": False,
    "no": False,
    "off": False,
    "0": False,
}
_INTEGER = re.compile(r"[+-]?[0-9]{1,20}")
_NUMBER = re.compile(r"[+-]?([0-9]{1,20}(\.[0-9]{0,20})?|\.[0-9]{1,20})([eE][+-]?[0-9]{1,3})?")


def _typed(text: str, key: Key) -> object:
    stripped = text.strip()
    if "null" in key.types and stripped.lower() == "null":
        return None
    if "boolean" in key.types:
        return _BOOLEANS.get(stripped.lower(), text)
    if "array" in key.types:
        return _list(stripped)
    if key.types & {"integer", "number"} and _INTEGER.fullmatch(stripped):
        return int(stripped)
    if "number" in key.types and _NUMBER.fullmatch(stripped):
        return float(stripped)
    return text


def _list(text: str) -> object:
    """A JSON list, or entries with commas between them."""
    if not text.startswith("["):
        return [entry.strip() for entry in text.split(",") if entry.strip()]
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return text


_SERVICE_LINK = re.compile(
    r"STEELYARD(_[A-Z0-9]+)*?_"
    r"(SERVICE_HOST|SERVICE_PORT(_[A-Z0-9_]+)?|PORT_[0-9]+_(TCP|UDP|SCTP)(_(ADDR|PORT|PROTO))?)"
)


def _is_service_link(name: str, value: str) -> bool:
    """True for what Kubernetes sets in every container for a Service called steelyard….

    `STEELYARD_PORT=tcp://10.0.0.1:8000` is the trap: nobody wrote it, and it is not a setting.
    """
    if "__" in name:
        return False
    is_address = name.endswith("_PORT") and "://" in value
    return is_address or _SERVICE_LINK.fullmatch(name) is not None
