"""Settings of batches, resolved. `cli.door` fills them in."""

from dataclasses import dataclass
from pathlib import Path

__all__ = ["BatchesConfig"]


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchesConfig:
    """Where batches are kept and how much of them there may be."""

    folder: Path
    """Files, results and progress; made when missing. One service at a time."""
    concurrency: int = 8
    """Lines at the engine at once, of all batches together."""
    file_bytes: int = 64 * 1024**2
    """Of one uploaded file; more is refused with 413."""
    line_bytes: int = 8 * 1024**2
    """Of one line; a file with a longer one fails validation."""
    max_lines: int = 50_000
    """Requests of one batch."""
    tenant_bytes: int = 4 * 1024**3
    """All files of a tenant, results included; an upload beyond it is refused."""
    open_batches: int = 16
    """Batches of a tenant that have not ended."""
