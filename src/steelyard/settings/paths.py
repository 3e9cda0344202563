"""What the project asks of the process environment: the only module that reads it.

Settings that come from `STEELYARD_…` variables are read by `layers` out of `environment()`.
"""

import os
from collections.abc import Mapping
from pathlib import Path

from steelyard.settings.layers import FILE_VARIABLE

__all__ = ["default_cache_dir", "environment", "named_file"]


def environment() -> Mapping[str, str]:
    """The variables of this process, as they are now."""
    return dict(os.environ)


def named_file(environ: Mapping[str, str]) -> Path | None:
    """The deployment file that `STEELYARD_CONFIG` names; None when it names none."""
    name = environ.get(FILE_VARIABLE)
    return Path(name).expanduser() if name else None


def default_cache_dir(environ: Mapping[str, str] | None = None) -> Path:
    """`$XDG_CACHE_HOME/steelyard`, else `~/.cache/steelyard`. Creates nothing.

    A relative `XDG_CACHE_HOME` is ignored, as the XDG base directory specification asks.
    """
    base = (environment() if environ is None else environ).get("XDG_CACHE_HOME", "")
    root = Path(base) if Path(base).is_absolute() else Path("~/.cache").expanduser()
    return root / "steelyard"
