"""What a report consists of: sentences and plain tables. Every output shows them in its own way."""

from dataclasses import dataclass

__all__ = ["Report", "Table"]


@dataclass(frozen=True, slots=True)
class Table:
    """Texts; numbers are already rounded for people."""

    title: str
    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    note: str = ""
    is_main: bool = False
    """Shown at a terminal too; the others are for files."""


@dataclass(frozen=True, slots=True)
class Report:
    """A result in words and tables."""

    title: str
    verdict: str
    """One line: may it be believed, and what is to be known first."""
    is_valid: bool
    reasons: tuple[str, ...]
    """Why not; empty when it is valid."""
    findings: tuple[str, ...]
    """Sentences, most important first."""
    tables: tuple[Table, ...]
