"""What a rule says when settings cannot be together; see `rules`."""

from dataclasses import dataclass

__all__ = ["Contradiction"]


@dataclass(frozen=True, slots=True)
class Contradiction:
    """Keys that cannot hold what they hold at the same time; the first one is at fault."""

    paths: tuple[str, ...]
    reason: str
    fix: str
