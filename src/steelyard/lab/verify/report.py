"""The result of a verification, as JSON and as JUnit XML.

The JSON's schema is `steelyard.verify/1`: members may be added under that name, not changed. It is
described in `docs/verify.md`. Tables for people are printed by `cli.verify`.
"""

from collections.abc import Iterable
from xml.etree import ElementTree  # written here, never read

import msgspec

from steelyard.lab.verify.compare import PromptComparison
from steelyard.lab.verify.exchange import excerpt
from steelyard.lab.verify.findings import Finding, Status

__all__ = ["SCHEMA", "ComparisonReport", "Report", "TargetReport", "junit_xml", "to_json"]

SCHEMA = "steelyard.verify/1"
_MESSAGE_CHARS = 300
_TEXT_CHARS = 8000


class TargetReport(msgspec.Struct, frozen=True, kw_only=True):
    """One server."""

    url: str
    server: str
    model: str
    models: tuple[str, ...]
    context_tokens: int | None
    paths: tuple[str, ...]
    unchecked_paths: tuple[str, ...]
    """Offered, but no check asks them."""
    findings: tuple[Finding, ...]
    elapsed_s: float

    def count(self, status: Status) -> int:
        """Findings that ended so."""
        return sum(finding.status is status for finding in self.findings)


class ComparisonReport(msgspec.Struct, frozen=True, kw_only=True):
    """Two servers against each other: the first target is left, the second right."""

    findings: tuple[Finding, ...]
    prompts: tuple[PromptComparison, ...]
    elapsed_s: float

    @property
    def positions(self) -> int:
        """Places at which both chose after the same text."""
        return sum(prompt.positions for prompt in self.prompts)

    @property
    def differences(self) -> tuple[int, int]:
        """Clear differences, and ties."""
        every = [one for prompt in self.prompts for one in prompt.differences]
        ties = sum(one.is_tie for one in every)
        return len(every) - ties, ties


class Report(msgspec.Struct, frozen=True, kw_only=True):
    """Everything."""

    schema: str = SCHEMA
    version: str
    started: str
    """UTC, ISO 8601."""
    tie_nats: float
    targets: tuple[TargetReport, ...]
    comparison: ComparisonReport | None = None

    @property
    def findings(self) -> tuple[Finding, ...]:
        """Of all targets and of the comparison."""
        own = [finding for target in self.targets for finding in target.findings]
        return tuple(own + list(self.comparison.findings if self.comparison else ()))

    @property
    def is_passed(self) -> bool:
        """True when something was proved and nothing disproved."""
        statuses = {finding.status for finding in self.findings}
        return Status.PASSED in statuses and not statuses & {Status.FAILED, Status.BROKEN}


def to_json(report: Report) -> bytes:
    """The whole report, indented."""
    return msgspec.json.format(msgspec.json.encode(report), indent=2) + b"\n"


def junit_xml(report: Report) -> bytes:
    """One suite per target, and one for the comparison."""
    root = ElementTree.Element("testsuites", name="steelyard verify")
    for target in report.targets:
        root.append(_suite(f"{target.url} {target.model}", target.findings, target.elapsed_s))
    if report.comparison is not None:
        both = " against ".join(target.url for target in report.targets)
        root.append(_suite(both, report.comparison.findings, report.comparison.elapsed_s))
    ElementTree.indent(root)
    return bytes(ElementTree.tostring(root, encoding="utf-8", xml_declaration=True)) + b"\n"


def _suite(name: str, findings: Iterable[Finding], elapsed_s: float) -> ElementTree.Element:
    findings = tuple(findings)
    counts = {
        "tests": len(findings),
        "failures": sum(finding.status is Status.FAILED for finding in findings),
        "errors": sum(finding.status is Status.BROKEN for finding in findings),
        "skipped": sum(finding.status is Status.SKIPPED for finding in findings),
    }
    suite = ElementTree.Element("testsuite", name=name, time=f"{elapsed_s:.3f}")
    suite.attrib |= {key: str(value) for key, value in counts.items()}
    suite.extend(_case(finding) for finding in findings)
    return suite


def _case(finding: Finding) -> ElementTree.Element:
    area = finding.check.partition(".")[0]
    case = ElementTree.Element("testcase", name=finding.check, classname=f"verify.{area}")
    case.set("time", f"{finding.elapsed_s:.3f}")
    if finding.status is not Status.PASSED:
        outcome = ElementTree.SubElement(case, _OUTCOMES[finding.status])
        first = finding.problems[0] if finding.problems else ""
        outcome.set("message", excerpt(first, _MESSAGE_CHARS))
        if finding.status is not Status.SKIPPED:
            outcome.text = excerpt(_explained(finding), _TEXT_CHARS)
    return case


_OUTCOMES = {Status.FAILED: "failure", Status.BROKEN: "error", Status.SKIPPED: "skipped"}


def _explained(finding: Finding) -> str:
    lines = [finding.proves, *(f"- {problem}" for problem in finding.problems)]
    if finding.hint:
        lines.append(f"hint: {finding.hint}")
    for one in finding.evidence:
        lines += ["", ">>> request", one.request, f"<<< answer, {one.elapsed_s:g} s", one.answer]
    return "\n".join(lines)
