"""What a long operation on a model tells while it goes on; who shows it decides how."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

__all__ = ["PullProgress", "Report", "report_nothing"]


@dataclass(frozen=True, slots=True)
class PullProgress:
    """A moment of a pull or a check."""

    step: Literal["waiting", "resolving", "downloading", "unpacking", "verifying"]
    """`waiting`: another process pulls the same model. `resolving`: asking where the files are."""
    file: str = ""
    done_bytes: int = 0
    total_bytes: int | None = None
    """None while it is not known."""


Report = Callable[[PullProgress], None]
"""Called often, from the thread that works; must return fast."""


def report_nothing(progress: PullProgress) -> None:
    """The default `Report`."""
