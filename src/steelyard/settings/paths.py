"""What the project asks of the process environment: the only module that reads it.

Settings that come from `STEELYARD_…` variables are read by `layers` out of `environment()`.
"""

import os
from collections.abc import Mapping
from pathlib import Path

from steelyard.contract.errors import SettingsError
from steelyard.settings.layers import FILE_VARIABLE

__all__ = ["default_cache_dir", "deployment_file", "environment", "expanded", "named_file"]


def environment() -> Mapping[str, str]:
    """The variables of this process, as they are now."""
    return dict(os.environ)


def named_file(environ: Mapping[str, str]) -> Path | None:
    """The deployment file that `STEELYARD_CONFIG` names; None when it names none."""
    name = environ.get(FILE_VARIABLE)
    return expanded(name) if name else None


def deployment_file(given: Path | None) -> Path | None:
    """`given`, else the file that `STEELYARD_CONFIG` names; None when there is neither."""
    return given or named_file(environment())


def default_cache_dir(environ: Mapping[str, str] | None = None) -> Path:
    """`$XDG_CACHE_HOME/steelyard`, else `~/.cache/steelyard`. Creates nothing.

    A relative `XDG_CACHE_HOME` is ignored, as the XDG base directory specification asks. Raises
    `SettingsError` where the user has no home, as in containers that run under a made-up id.
    """
    base = Path((environment() if environ is None else environ).get("XDG_CACHE_HOME", ""))
    if base.is_absolute():
        return base / "steelyard"
    try:
        return Path.home() / ".cache" / "steelyard"
    except RuntimeError as error:
        raise SettingsError(
            "has no default, because this user has no home folder",
            param="cache_dir",
            fix="set cache_dir (STEELYARD_CACHE_DIR) to a folder that can be written",
        ) from error


def default_data_dir(environ: Mapping[str, str] | None = None) -> Path:
    """`$XDG_DATA_HOME/steelyard`, else `~/.local/share/steelyard`: what must not be lost.

    Creates nothing. Raises `SettingsError` where the user has no home.
    """
    base = Path((environment() if environ is None else environ).get("XDG_DATA_HOME", ""))
    if base.is_absolute():
        return base / "steelyard"
    try:
        return Path.home() / ".local/share/steelyard"
    except RuntimeError as error:
        raise SettingsError(
            "there is no place for lasting files, because this user has no home folder",
            fix="name the file, or set XDG_DATA_HOME to a folder that can be written",
        ) from error


def expanded(path: str) -> Path:
    """`path` with `~` and `~user` replaced; unchanged when there is no such home."""
    try:
        return Path(path).expanduser()
    except RuntimeError:
        return Path(path)
