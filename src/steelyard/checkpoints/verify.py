"""Checksums: is this model, byte for byte, the one that was published?

Needs a published checksum, from the manifest of a pulled model or from the catalog; a model that
the user brought himself can only be checked for its structure, which `checkpoint` does.
"""

import hashlib
from pathlib import Path

from steelyard.checkpoints._reading import opened
from steelyard.checkpoints.catalog import find_weights_sha256
from steelyard.checkpoints.description import Checkpoint
from steelyard.checkpoints.manifest import read_manifest
from steelyard.checkpoints.progress import PullProgress, Report, report_nothing
from steelyard.contract.errors import CheckpointError

__all__ = ["require_sha256", "sha256_of", "verify_checkpoint"]

_PIECE_BYTES = 4 * 1024 * 1024


def verify_checkpoint(checkpoint: Checkpoint, report: Report = report_nothing) -> tuple[Path, ...]:
    """Check every file whose checksum is known and return those files; empty when none is.

    Reads them whole: about a second per GB. Raises `CheckpointError` naming the damaged file.
    """
    directory = checkpoint.path if checkpoint.path.is_dir() else checkpoint.path.parent
    known = _known_checksums(directory, checkpoint)
    for path, expected in known.items():
        require_sha256(path, expected, report)
    return tuple(known)


def require_sha256(path: Path, expected: str, report: Report = report_nothing) -> None:
    """Raise `CheckpointError` unless the file has this checksum (hexadecimal)."""
    found = sha256_of(path, report)
    if found != expected:
        raise CheckpointError(
            f"its SHA-256 is {found}, not {expected}: the bytes differ from what was published",
            param=str(path),
            fix="delete it and fetch the model again; if that repeats, suspect disk or memory",
        )


def sha256_of(path: Path, report: Report = report_nothing) -> str:
    """The checksum of a whole file, hexadecimal."""
    digest = hashlib.sha256()
    with opened(path) as (source, size_bytes):
        while piece := source.read(_PIECE_BYTES):
            digest.update(piece)
            report(PullProgress("verifying", path.name, source.tell(), size_bytes))
    return digest.hexdigest()


def _known_checksums(directory: Path, checkpoint: Checkpoint) -> dict[Path, str]:
    manifest = read_manifest(directory)
    if manifest is not None:
        return {
            directory / name: facts.sha256
            for name, facts in manifest.files.items()
            if facts.sha256 is not None
        }
    known = {}
    for path in checkpoint.files:
        expected = find_weights_sha256(path.name, path.stat().st_size)
        if expected is not None:
            known[path] = expected
    return known
