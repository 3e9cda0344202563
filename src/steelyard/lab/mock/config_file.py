"""From a YAML file and flags to a `MockConfig`: defaults < preset < file < flags.

Refuses unknown keys and impossible values with the key's name. What the keys mean is `config`'s
business.
"""

import difflib
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import msgspec.inspect

from steelyard.contract.errors import SettingsError
from steelyard.lab.mock.bottlenecks import BOTTLENECKS
from steelyard.lab.mock.config import MockConfig
from steelyard.lab.mock.distributions import Distribution, parse_distribution

__all__ = ["ConfigKey", "config_keys", "load_config", "make_config"]

_MAX_FILE_BYTES = 64 * 1024


class ConfigKey(NamedTuple):
    """One key for people: its name, its meaning and its default as text."""

    name: str
    description: str
    default: str


def config_keys() -> list[ConfigKey]:
    """Every key, in the order of `MockConfig`."""
    info = msgspec.inspect.type_info(MockConfig)
    assert isinstance(info, msgspec.inspect.StructType)
    keys = []
    for field in info.fields:
        assert isinstance(field.type, msgspec.inspect.Metadata), f"{field.name} has no text"
        text = (field.type.extra_json_schema or {})["description"]
        keys.append(ConfigKey(field.name, text, _shown(field.default)))
    return keys


def load_config(file: Path | None, flags: Mapping[str, object]) -> MockConfig:
    """The configuration of a run. `flags` holds only what was given. Raises `SettingsError`."""
    return make_config({**(_read(file) if file else {}), **flags})


def make_config(values: Mapping[str, object]) -> MockConfig:
    """Check `values` and fill in the preset and the defaults. Raises `SettingsError`."""
    name: Any = values.get("bottleneck")
    merged = {**BOTTLENECKS.get(name, {}), **values}
    for key in merged:
        if key not in MockConfig.__struct_fields__:
            raise _unknown(key)
    for key in _DISTRIBUTIONS & merged.keys():
        merged[key] = _read_distribution(key, merged[key])
    try:
        config = msgspec.convert(merged, MockConfig, strict=False, dec_hook=_keep)
    except msgspec.ValidationError as error:
        reason, _, where = str(error).partition(" - at `$.")
        raise SettingsError(reason, param=where.rstrip("`") or None) from None
    faults = sum(getattr(config, key) for key in MockConfig.__struct_fields__ if _is_share(key))
    if faults > 1:
        raise SettingsError(f"the shares of the faults add up to {faults:g}, more than 1")
    return config


def _is_share(key: str) -> bool:
    return key.startswith("fault_") and key != "fault_tokens"


def _read(file: Path) -> dict[str, object]:
    import yaml  # only runs with a file pay for it

    try:
        with file.open("rb") as stream:
            content = stream.read(_MAX_FILE_BYTES + 1)
    except OSError as error:
        raise SettingsError(error.strerror or str(error), param=str(file)) from error
    if len(content) > _MAX_FILE_BYTES:
        raise SettingsError("is too large to be a mock's configuration", param=str(file))
    try:
        values = yaml.safe_load(content)
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise SettingsError(f"is no YAML: {error}", param=str(file)) from None
    if values is None:
        return {}
    if not isinstance(values, dict) or not all(isinstance(key, str) for key in values):
        raise SettingsError("must hold keys and values", param=str(file))
    return values


_DISTRIBUTIONS = {"ttft_ms", "itl_ms", "output_tokens"}


def _read_distribution(key: str, value: object) -> Distribution:
    try:
        return parse_distribution(value)
    except SettingsError as error:
        raise SettingsError(error.message, param=key, fix=error.fix) from None


def _keep(kind: type, value: object) -> object:
    return value


def _unknown(key: str) -> SettingsError:
    near = difflib.get_close_matches(key, MockConfig.__struct_fields__, n=1)
    fix = f"did you mean {near[0]}?" if near else "`steelyard mock --help` lists the keys"
    return SettingsError("is not a known key", param=key, fix=fix)


def _shown(default: object) -> str:
    return "none" if default is None else str(default)
