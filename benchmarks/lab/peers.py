"""Installs the other load generators, each into an environment of its own, one at a time.

guidellm brings torch and its CUDA libraries (6 GB). Nothing is installed unless the disk has room
for twice what it needs.
"""

import shutil
import subprocess
import sys
from pathlib import Path

__all__ = ["require_peer", "require_tokenizer"]

_NEEDED_GB = {"aiperf": 1.2, "guidellm": 6.1}
_STEELYARD = Path(sys.executable).parent / "steelyard"


def require_peer(requirement: str, peers: Path) -> None:
    """Install `requirement` unless it is there. Raises `RuntimeError` when it cannot be."""
    name, _, version = requirement.partition("==")
    python = peers / name / "bin" / "python"
    if python.exists() and _version(python, name) == version:
        return
    peers.mkdir(parents=True, exist_ok=True)
    free_gb = shutil.disk_usage(peers).free / 1e9
    if free_gb < 2 * _NEEDED_GB[name]:
        raise RuntimeError(f"{name} needs {_NEEDED_GB[name]} GB, {free_gb:.0f} GB are free")
    print(f"installing {requirement} into {peers / name}", file=sys.stderr, flush=True)
    subprocess.run([sys.executable, "-m", "venv", str(peers / name)], check=True)
    pip = [str(python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    subprocess.run(["nice", *pip, requirement], check=True)


def require_tokenizer(peers: Path) -> None:
    """Write the mock's tokenizer, which the others want to count with."""
    peers.mkdir(parents=True, exist_ok=True)
    subprocess.run(
        [str(_STEELYARD), "mock", "tokenizer", str(peers / "tokenizer")],
        check=True,
        stdout=subprocess.DEVNULL,
    )


def _version(python: Path, name: str) -> str:
    code = f"import importlib.metadata as m; print(m.version({name!r}))"
    done = subprocess.run([str(python), "-c", code], capture_output=True, text=True)
    return done.stdout.strip()
