"""May this result pass? A comparison with a baseline, read with a tolerance for every number.

    regressed    certainly worse, and by more than the tolerance
    uncertain    may be worse by more than the tolerance: too little was measured to say
    kept         everything else

A gate that fails on noise is switched off within a week, so by default only what is certain fails;
a strict one wants certainty of the opposite.
"""

import enum
from collections.abc import Mapping
from xml.etree import ElementTree  # written here, never read

import msgspec

from steelyard.contract.errors import InvalidRequest
from steelyard.lab.judge.comparison import Comparison, Difference, relative
from steelyard.lab.judge.stored import COMPARED, RATE

__all__ = [
    "GATE_SCHEMA",
    "Gate",
    "GateCheck",
    "GateStatus",
    "gate_json",
    "junit_xml",
    "parse_tolerances",
    "pass_gate",
]

GATE_SCHEMA = "steelyard.bench.gate/1"


class GateStatus(enum.Enum):
    """How a check ended."""

    KEPT = "kept"
    UNCERTAIN = "uncertain"
    REGRESSED = "regressed"


class GateCheck(msgspec.Struct, frozen=True, kw_only=True):
    """One number against the baseline's."""

    name: str
    tolerance: float
    status: GateStatus
    message: str
    baseline: float
    result: float


class Gate(msgspec.Struct, frozen=True, kw_only=True):
    """All checks."""

    schema: str = GATE_SCHEMA
    baseline: str
    result: str
    is_strict: bool
    is_passed: bool
    is_valid: bool
    """Whether the measurements themselves may be believed."""
    reasons: list[str]
    """Why not."""
    checks: list[GateCheck]

    def named(self, status: GateStatus) -> list[GateCheck]:
        """The checks that ended so."""
        return [check for check in self.checks if check.status is status]


def pass_gate(
    comparison: Comparison,
    tolerances: Mapping[str, float],
    *,
    tolerance: float,
    is_strict: bool = False,
) -> Gate:
    """`tolerances` by name, such as `ttft_ms.p99` or `ttft_ms`; `tolerance` for all others."""
    checks = [
        _check(row, _tolerance_of(row, tolerances, tolerance)) for row in comparison.differences
    ]
    failing = {GateStatus.REGRESSED} | ({GateStatus.UNCERTAIN} if is_strict else set())
    return Gate(
        baseline=comparison.left.label,
        result=comparison.right.label,
        is_strict=is_strict,
        is_passed=comparison.is_valid and not any(check.status in failing for check in checks),
        is_valid=comparison.is_valid,
        reasons=comparison.reasons,
        checks=checks,
    )


def parse_tolerances(texts: list[str]) -> tuple[float | None, dict[str, float]]:
    """`10` is for everything, `ttft_ms.p99=15` for one number; percent.

    Raises `InvalidRequest` for what is neither.
    """
    every, named = None, {}
    known = {metric for metric, _ in COMPARED} | {RATE.metric}
    known |= {f"{metric}.{statistic}" for metric, all_of in COMPARED for statistic in all_of}
    for text in texts:
        name, equals, value = text.rpartition("=")
        try:
            share = float(value.removesuffix("%")) / 100
        except ValueError:
            share = -1.0
        if not 0 <= share < 100:
            raise InvalidRequest(
                f"{text!r} is no tolerance", param="tolerance", fix="write 10 or ttft_ms.p99=15"
            )
        if not equals:
            every = share
        elif name in known:
            named[name] = share
        else:
            raise InvalidRequest(
                f"{name!r} is not compared",
                param="tolerance",
                fix=f"name one of {', '.join(sorted(known))}",
            )
    return every, named


def gate_json(gate: Gate) -> bytes:
    """Everything, indented."""
    return msgspec.json.format(msgspec.json.encode(gate), indent=1) + b"\n"


def junit_xml(gate: Gate) -> bytes:
    """One test case per number; uncertain ones are skipped, or fail when the gate is strict."""
    suite = ElementTree.Element("testsuite", name=f"{gate.result} against {gate.baseline}")
    failed = [c for c in gate.checks if _junit_outcome(c, gate.is_strict) == "failure"]
    skipped = [c for c in gate.checks if _junit_outcome(c, gate.is_strict) == "skipped"]
    suite.attrib |= {
        "tests": str(len(gate.checks) + 1),
        "failures": str(len(failed)),
        "errors": str(int(not gate.is_valid)),
        "skipped": str(len(skipped)),
    }
    audit = ElementTree.SubElement(suite, "testcase", name="audit", classname="bench.gate")
    if not gate.is_valid:
        message = "; ".join(gate.reasons)
        ElementTree.SubElement(audit, "error", message=message).text = message
    for check in gate.checks:
        case = ElementTree.SubElement(suite, "testcase", name=check.name, classname="bench.gate")
        outcome = _junit_outcome(check, gate.is_strict)
        if outcome is not None:
            ElementTree.SubElement(case, outcome, message=check.message).text = check.message
    root = ElementTree.Element("testsuites", name="steelyard bench gate")
    root.append(suite)
    ElementTree.indent(root)
    return bytes(ElementTree.tostring(root, encoding="utf-8", xml_declaration=True)) + b"\n"


def _junit_outcome(check: GateCheck, is_strict: bool) -> str | None:
    if check.status is GateStatus.REGRESSED:
        return "failure"
    if check.status is GateStatus.UNCERTAIN:
        return "failure" if is_strict else "skipped"
    return None


def _tolerance_of(row: Difference, tolerances: Mapping[str, float], default: float) -> float:
    exact = f"{row.metric}.{row.statistic}"
    return tolerances.get(exact, tolerances.get(row.metric, default))


def _check(row: Difference, tolerance: float) -> GateCheck:
    loss, surely, perhaps = _losses(row)
    if surely is not None and surely > 0 and loss > tolerance:
        status, words = GateStatus.REGRESSED, f"worse by {relative(loss)}"
    elif perhaps is None or perhaps > tolerance:
        at_worst = "nobody knows how much" if perhaps is None else relative(perhaps)
        status, words = GateStatus.UNCERTAIN, f"may be worse by {at_worst}"
    else:
        status, words = GateStatus.KEPT, f"worse by {relative(max(perhaps, 0.0))} at most"
    return GateCheck(
        name=row.name,
        tolerance=tolerance,
        status=status,
        message=f"{words}, allowed are {relative(tolerance)}",
        baseline=row.left,
        result=row.right,
    )


def _losses(row: Difference) -> tuple[float, float | None, float | None]:
    """How much worse, at least and at most, as shares; of rates, where more is better, lost."""
    change = row.change
    if row.metric != RATE.metric:
        return change.value, change.low, change.high
    return (
        -change.value,
        None if change.high is None else -change.high,
        None if change.low is None else -change.low,
    )
