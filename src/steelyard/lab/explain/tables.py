"""An explanation in words and one table."""

from steelyard.lab.explain.explanation import Explanation
from steelyard.lab.report import Report, Table
from steelyard.lab.report.cells import optional_cell, percent_cell

__all__ = ["explanation_report"]


def explanation_report(explanation: Explanation, name: str = "") -> Report:
    """The bound first, then why, then what cannot be known."""
    rows = tuple(
        (
            part.name,
            optional_cell(part.mean_ms) if part.mean_ms is not None else "not known",
            optional_cell(part.excess_ms),
            percent_cell(part.share),
            part.how,
        )
        for part in explanation.parts
    )
    columns = ("part", "ms", "because of load", "share", "from")
    return Report(
        title=name or "Explanation",
        verdict=f"{explanation.bound}: {explanation.words}",
        is_valid=True,
        reasons=(),
        findings=(
            *explanation.evidence,
            *(f"Cannot be known: {sentence}" for sentence in explanation.unknown),
        ),
        tables=(Table("Where a request spends its time", columns, rows, is_main=True),),
    )
