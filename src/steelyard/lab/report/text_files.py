"""Reports as Markdown and as CSV."""

import csv
import io

from steelyard.lab.report.tables import Report, Table
from steelyard.lab.result import RequestTable, RunResult

__all__ = ["as_csv", "as_markdown", "requests_as_csv"]


def as_markdown(report: Report) -> str:
    """Headings, sentences and tables."""
    parts = [f"# {report.title}\n", f"**{report.verdict}**\n"]
    parts += [f"- INVALID: {reason}" for reason in report.reasons]
    parts += [f"- {sentence}" for sentence in report.findings]
    for table in report.tables:
        parts.append(f"\n## {table.title}\n")
        parts.append(_markdown_table(table))
        if table.note:
            parts.append(f"\n{table.note}")
    return "\n".join(parts) + "\n"


def as_csv(report: Report) -> str:
    """The first table: the one that a report is about."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    table = report.tables[0]
    writer.writerow(table.columns)
    writer.writerows(table.rows)
    return text.getvalue()


def requests_as_csv(result: RunResult) -> str:
    """One line per request; empty where there is no value. Only the header without a table."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    names = RequestTable.__struct_fields__
    writer.writerow(names)
    if result.requests is not None:
        columns = (getattr(result.requests, name) for name in names)
        writer.writerows(zip(*columns, strict=True))
    return text.getvalue()


def _markdown_table(table: Table) -> str:
    lines = [table.columns, ("---",) * len(table.columns), *table.rows]
    cells = ([cell.replace("|", "\\|").replace("\n", " ") for cell in line] for line in lines)
    return "\n".join(f"| {' | '.join(line)} |" for line in cells)
