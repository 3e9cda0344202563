"""Comparisons and gates in words and tables, for every output that reports have."""

from steelyard.lab.judge.comparison import Comparison, relative
from steelyard.lab.judge.gate import Gate, GateStatus
from steelyard.lab.report import Report, Table
from steelyard.lab.report.cells import number_cell
from steelyard.lab.stats import Estimate

__all__ = ["comparison_report", "gate_report"]


def comparison_report(comparison: Comparison) -> Report:
    """The verdict first."""
    rows = tuple(
        (
            row.name,
            number_cell(row.left),
            number_cell(row.right),
            _change_cell(row.change),
            "" if row.detectable is None else relative(row.detectable),
            row.words,
        )
        for row in comparison.differences
    )
    left, right = comparison.left, comparison.right
    columns = ("", "A", "B", "B against A", "detectable", "verdict")
    note = (
        "In brackets: all these intervals hold together with 95 % confidence. Detectable: the "
        "smallest change that four of five such comparisons find."
    )
    verdict = comparison.words if comparison.is_valid else f"INVALID ({comparison.words})"
    return Report(
        title="B against A",
        verdict=verdict,
        is_valid=comparison.is_valid,
        reasons=tuple(comparison.reasons),
        findings=(
            f"A: {left.label} ({left.requests} requests); B: {right.label} "
            f"({right.requests} requests).",
            f"How: {comparison.method}. Differences up to {relative(comparison.margin)} do not "
            "matter.",
            *(f"Unlike, as allowed: {one}" for one in comparison.unlike),
            *comparison.caveats,
        ),
        tables=(Table("Differences", columns, rows, note, is_main=True),),
    )


def gate_report(gate: Gate) -> Report:
    """What regressed first."""
    order = (GateStatus.REGRESSED, GateStatus.UNCERTAIN, GateStatus.KEPT)
    rows = tuple(
        (
            check.name,
            number_cell(check.baseline),
            number_cell(check.result),
            check.status.value,
            check.message,
        )
        for status in order
        for check in gate.named(status)
    )
    columns = ("", "baseline", "result", "status", "why")
    return Report(
        title=f"{gate.result} against {gate.baseline}",
        verdict=_gate_verdict(gate),
        is_valid=gate.is_passed,
        reasons=tuple(gate.reasons),
        findings=(_MORE_RUNS,) if gate.named(GateStatus.UNCERTAIN) else (),
        tables=(Table("Gate", columns, rows, is_main=True),),
    )


_MORE_RUNS = (
    "Uncertain numbers become certain with more results in the baseline's set, or with longer runs."
)


def _gate_verdict(gate: Gate) -> str:
    if not gate.is_valid:
        return "INVALID"
    regressed, uncertain = (
        len(gate.named(status)) for status in (GateStatus.REGRESSED, GateStatus.UNCERTAIN)
    )
    if regressed:
        return f"regressed: {regressed} of {len(gate.checks)}"
    kept = "passed" if gate.is_passed else "not certain enough"
    return f"{kept}, {uncertain} uncertain" if uncertain else kept


def _change_cell(change: Estimate) -> str:
    value = f"{change.value:+.1%}"
    if change.low is None or change.high is None:
        return value
    return f"{value} [{change.low:+.1%}, {change.high:+.1%}]"
