"""Results of `steelyard bench` for people: what is printed, what is written, how it ends."""

from collections.abc import Callable, Mapping
from pathlib import Path

import typer
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from steelyard.cli.bench_flags import OutputFlags
from steelyard.cli.bench_session import INTERRUPTED
from steelyard.contract.errors import InvalidRequest
from steelyard.lab.report import (
    Report,
    as_csv,
    as_html,
    as_markdown,
    figures_of,
    report_of,
    requests_as_csv,
)
from steelyard.lab.report import Table as ReportTable
from steelyard.lab.result import RunResult, encode_result
from steelyard.lab.series import Series

__all__ = ["INVALID", "finish", "print_report"]

INVALID = 3

_FILES = {
    "json": "result.json",
    "csv": "result.csv",
    "requests_csv": "requests.csv",
    "markdown": "report.md",
    "html": "report.html",
}
"""Names in the folder of `--save`, by option."""
_WIDE = 120
"""Columns of a file or a pipe."""


def finish(result: RunResult | Series, flags: OutputFlags) -> None:
    """Write, print, and end with the status that the audit asks for."""
    report = report_of(result)
    paths = _paths(result, flags)
    _write(_texts(result, report), paths)
    console = Console(highlight=False)
    if not console.is_terminal:
        console = Console(highlight=False, width=max(console.width, _WIDE))
    print_report(report, console, is_brief=flags.quiet)
    for path in paths.values():
        console.print(f"wrote {escape(str(path))}", soft_wrap=True)
    runs = [result] if isinstance(result, RunResult) else result.runs
    if any("interrupted" in run.audit.labels for run in runs):
        raise typer.Exit(INTERRUPTED)
    if not report.is_valid:
        raise typer.Exit(INVALID)


def print_report(report: Report, console: Console, *, is_brief: bool = False) -> None:
    """Verdict, findings and the tables that fit a terminal."""
    style = "bold green" if report.is_valid else "bold red"
    console.print(f"[bold]{escape(report.title)}[/bold]  [{style}]{escape(report.verdict)}[/]")
    for reason in report.reasons:
        console.print(f"[red]INVALID: {escape(reason)}[/red]", soft_wrap=True)
    if is_brief:
        return
    for sentence in report.findings:
        console.print(escape(sentence), soft_wrap=True)
    for table in report.tables:
        if table.is_main:
            console.print()
            console.print(_rich_table(table, console.width))


def _rich_table(table: ReportTable, width: int) -> Table:
    """Without explanations; without intervals too where they do not fit."""
    columns = [at for at, name in enumerate(table.columns) if name != "meaning"]
    lines = [[line[at] for at in columns] for line in (table.columns, *table.rows)]
    if sum(max(map(len, cells)) + 2 for cells in zip(*lines, strict=True)) > width:
        lines = [[cell.partition(" [")[0] for cell in line] for line in lines]
    shown = Table(box=None, pad_edge=False, padding=(0, 1, 0, 0), title=table.title)
    shown.title_justify = "left"
    for name, *cells in zip(*lines, strict=True):
        # Only titles may be broken, and those between words.
        least = max(len(text) for text in (*name.split(), *cells))
        shown.add_column(name, min_width=least)
    for line in lines[1:]:
        shown.add_row(*map(escape, line))
    return shown


def _paths(result: RunResult | Series, flags: OutputFlags) -> dict[str, Path]:
    """Where which file goes: those asked for by name, and all into the folder."""
    paths = {} if flags.save is None else {key: flags.save / name for key, name in _FILES.items()}
    if not isinstance(result, RunResult):
        paths.pop("requests_csv", None)
        if flags.requests_csv is not None:
            raise typer.BadParameter(
                "a series has no list of requests", param_hint="--requests-csv"
            )
    for key in _FILES:
        path = getattr(flags, key)
        if path is not None:
            paths[key] = path
    return paths


def _texts(result: RunResult | Series, report: Report) -> Mapping[str, Callable[[], str]]:
    return {
        "json": lambda: encode_result(result).decode(),
        "csv": lambda: as_csv(report),
        "requests_csv": lambda: requests_as_csv(result) if isinstance(result, RunResult) else "",
        "markdown": lambda: as_markdown(report),
        "html": lambda: as_html(report, figures_of(result)),
    }


def _write(texts: Mapping[str, Callable[[], str]], paths: Mapping[str, Path]) -> None:
    for key, path in paths.items():
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(texts[key](), encoding="utf-8")
        except OSError as error:
            raise InvalidRequest(error.strerror or str(error), param=str(path)) from error
