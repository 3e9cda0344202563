"""The note kept beside a pulled model: where it came from and what its files must be.

Written by `store` when a pull is complete, read by `checkpoint` (name) and `verify` (checksums).
A model that the user put somewhere himself has none.
"""

from pathlib import Path

import msgspec

from steelyard.checkpoints._reading import damaged, opened
from steelyard.checkpoints.safetensors_files import is_plain_name

__all__ = ["MANIFEST_NAME", "FileFacts", "Manifest", "read_manifest", "write_manifest"]

MANIFEST_NAME = "steelyard-model.json"
_MAX_BYTES = 4 * 1024 * 1024


class FileFacts(msgspec.Struct, frozen=True, omit_defaults=True):
    """What one file must be."""

    size_bytes: int
    sha256: str | None = None
    """Hexadecimal; None when the source publishes none for this file."""


class Manifest(msgspec.Struct, frozen=True, kw_only=True):
    """One pulled model."""

    name: str
    """What the user calls it."""
    source: str
    """For people: package and version, or repository and commit."""
    entry: str
    """The file to open, or `.` for the directory as a whole."""
    files: dict[str, FileFacts]


def read_manifest(directory: Path) -> Manifest | None:
    """The manifest of a directory; None when there is none."""
    path = directory / MANIFEST_NAME
    if not path.exists():
        return None
    with opened(path) as (source, _):
        body = source.read(_MAX_BYTES)
    try:
        manifest = msgspec.json.decode(body, type=Manifest)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise damaged(path, str(error)) from error
    names = [name for name in (*manifest.files, manifest.entry) if name != "."]
    if not all(map(is_plain_name, names)):
        raise damaged(path, "it names files outside its folder")
    return manifest


def write_manifest(directory: Path, manifest: Manifest) -> None:
    """Write it; the caller owns `directory`. Raises `OSError`."""
    body = msgspec.json.format(msgspec.json.encode(manifest), indent=2)
    (directory / MANIFEST_NAME).write_bytes(body)
