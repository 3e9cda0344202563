"""Prints a verification for people: a table of all checks, then what failed and how.

Files for programs are written by `lab.verify.report`.
"""

from collections.abc import Iterable, Sequence

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from steelyard.lab.verify import Finding, Report, Status, TargetReport
from steelyard.lab.verify.report import ComparisonReport

__all__ = ["print_report"]

_STYLES = {
    Status.PASSED: "green",
    Status.FAILED: "bold red",
    Status.SKIPPED: "yellow",
    Status.BROKEN: "bold magenta",
}
_DETAILS = 6
"""Problems shown per check; the files hold all."""


def print_report(report: Report, console: Console | None = None) -> None:
    """Print everything; to standard output unless told otherwise."""
    console = console or Console(highlight=False)
    for target in report.targets:
        _print_target(console, target)
    if report.comparison is not None:
        _print_comparison(console, report.comparison)
    failed = [f for f in report.findings if f.status in (Status.FAILED, Status.BROKEN)]
    for finding in failed:
        _print_failure(console, finding)
    if failed:
        console.print()
    for target in report.targets:
        console.print(
            f"{escape(target.url)}: {_verdict(target.findings)}, {target.elapsed_s:.0f} s"
        )
    if report.comparison is not None:
        console.print(f"comparison: {_verdict(report.comparison.findings)}")


def _print_target(console: Console, target: TargetReport) -> None:
    context = f", {target.context_tokens} tokens" if target.context_tokens else ""
    console.print(f"[bold]{escape(target.url)}[/bold]  {escape(target.server)}")
    console.print(f"  model {escape(target.model)}{context}; offers {', '.join(target.paths)}")
    if target.unchecked_paths:
        console.print(
            f"  [yellow]offered, not checked:[/yellow] {', '.join(target.unchecked_paths)}"
        )
    _print_findings(console, target.findings)


def _print_comparison(console: Console, comparison: ComparisonReport) -> None:
    clear, ties = comparison.differences
    console.print("[bold]comparison[/bold]  left: first URL, right: second")
    console.print(
        f"  {comparison.positions} choices after the same text: {clear} clearly different, "
        f"{ties} ties"
    )
    _print_findings(console, comparison.findings)


def _print_findings(console: Console, findings: Iterable[Finding]) -> None:
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
    table.add_column("check", no_wrap=True)
    table.add_column("", no_wrap=True)
    table.add_column("s", justify="right", no_wrap=True)
    table.add_column("", overflow="fold")
    for one in findings:
        table.add_row(
            one.check,
            f"[{_STYLES[one.status]}]{one.status.value}[/]",
            f"{one.elapsed_s:.1f}",
            escape(_remark(one)),
        )
    console.print(table)


def _remark(finding: Finding) -> str:
    if finding.status is Status.PASSED:
        return "; ".join(finding.notes[:2])
    return _short(finding.problems[0]) if finding.problems else ""


def _print_failure(console: Console, finding: Finding) -> None:
    style = _STYLES[finding.status]
    console.print(f"\n[{style}]{finding.check}[/]  {escape(finding.proves)}")
    for problem in finding.problems[:_DETAILS]:
        console.print(f"  - {escape(problem)}")
    if len(finding.problems) > _DETAILS:
        console.print(f"  - and {len(finding.problems) - _DETAILS} more")
    if finding.hint:
        console.print(f"  hint: {escape(finding.hint)}", style="dim")
    for one in finding.evidence[:2]:
        console.print(f"  asked: {escape(_one_line(one.request))}", style="dim")
        console.print(f"  got:   {escape(_one_line(one.answer))}", style="dim")


def _verdict(findings: Sequence[Finding]) -> str:
    counts = {status: sum(f.status is status for f in findings) for status in Status}
    words = [f"[{_STYLES[s]}]{count} {s.value}[/]" for s, count in counts.items() if count]
    return ", ".join(words) or "nothing was checked"


def _one_line(text: str) -> str:
    return _short(" ".join(text.split()), 400)


def _short(text: str, limit: int = 160) -> str:
    return text if len(text) <= limit else f"{text[:limit]} …"
