"""Files and batches as OpenAI writes them, and what is kept of a batch besides.

Data only. Who changes a batch's status, and when, is in `ledger`.
"""

from typing import Literal

import msgspec

__all__ = [
    "OPEN",
    "BatchCounts",
    "BatchError",
    "BatchErrors",
    "BatchObject",
    "BatchRecord",
    "BatchStatus",
    "Ending",
    "FileDeleted",
    "FileObject",
    "ObjectList",
]

BatchStatus = Literal[
    "validating", "failed", "in_progress", "completed", "expired", "cancelling", "cancelled"
]

Ending = Literal["completed", "expired", "cancelled"]
"""How a batch with a valid input ends."""

OPEN: frozenset[BatchStatus] = frozenset({"validating", "in_progress", "cancelling"})
"""Statuses of a batch that has not ended."""


class FileObject(msgspec.Struct, frozen=True, kw_only=True):
    """`file`."""

    id: str
    object: str = "file"
    bytes: int
    created_at: int
    filename: str
    purpose: str
    status: str = "processed"


class FileDeleted(msgspec.Struct, frozen=True):
    """The answer to a deletion."""

    id: str
    object: str = "file"
    deleted: bool = True


class BatchCounts(msgspec.Struct, frozen=True):
    """Lines of a batch."""

    total: int = 0
    completed: int = 0
    failed: int = 0


class BatchError(msgspec.Struct, frozen=True, kw_only=True):
    """Why a batch failed its validation."""

    code: str
    message: str
    line: int | None
    param: str | None = None


class BatchErrors(msgspec.Struct, frozen=True):
    """A list of them."""

    data: tuple[BatchError, ...]
    object: str = "list"


class BatchObject(msgspec.Struct, frozen=True, kw_only=True):
    """`batch`. Times are Unix seconds."""

    id: str
    object: str = "batch"
    endpoint: str
    errors: BatchErrors | None = None
    input_file_id: str
    completion_window: str
    status: BatchStatus = "validating"
    output_file_id: str | None = None
    error_file_id: str | None = None
    created_at: int
    in_progress_at: int | None = None
    expires_at: int
    completed_at: int | None = None
    failed_at: int | None = None
    expired_at: int | None = None
    cancelling_at: int | None = None
    cancelled_at: int | None = None
    request_counts: BatchCounts = BatchCounts()
    metadata: dict[str, str] | None = None


class BatchRecord(msgspec.Struct, frozen=True, kw_only=True):
    """A batch, and on whose behalf its lines run: with what its creator was allowed."""

    batch: BatchObject
    tenant: str
    plan: str | None
    models: tuple[str, ...] | None
    """None: all."""


class ObjectList(msgspec.Struct, frozen=True, kw_only=True):
    """A page of a list."""

    object: str = "list"
    data: list[FileObject] | list[BatchObject]
    first_id: str | None
    last_id: str | None
    has_more: bool
