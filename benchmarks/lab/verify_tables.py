"""The results of `verify_targets`: as data, and as Markdown for people."""

from pathlib import Path
from typing import Any

import msgspec
from benchmarks.engines.machine import Facts
from benchmarks.lab.verify_judgements import JUDGEMENTS

__all__ = ["FaultRow", "Results", "TargetRow", "write_markdown"]


class TargetRow(msgspec.Struct, kw_only=True):
    """One server."""

    engine: str
    family: str
    server: str
    shown: str
    passed: int
    skipped: list[str]
    failed: dict[str, str]
    """Check → its first problem."""
    unchecked: list[str]
    elapsed_s: float


class FaultRow(msgspec.Struct):
    """One planted fault."""

    name: str
    description: str
    failed: list[str]
    """Checks that failed with it."""


class Results(msgspec.Struct, kw_only=True):
    """All parts; those that were not run are empty."""

    machine: Facts
    targets: dict[str, TargetRow] = {}
    faults: list[FaultRow] = []
    comparison: dict[str, Any] | None = None


def write_markdown(results: Results, file: Path) -> None:
    """Tables, with what was seen when a finding was looked at by hand."""
    lines = ["# Verification of servers", "", _machine(results.machine), ""]
    lines += _targets(results)
    for target in results.targets.values():
        lines += _failures(target)
    lines += _faults(results.faults)
    if results.comparison is not None:
        lines += _comparison(results.comparison)
    file.write_text("\n".join(lines).rstrip() + "\n")


def _machine(facts: Facts) -> str:
    return (
        f"Measured {facts.date[:10]} at commit {facts.commit}, {facts.cpu_model}, "
        f"{facts.cpus} cores, SmolLM2-135M; `python -m benchmarks.lab.verify_targets`."
    )


def _targets(results: Results) -> list[str]:
    lines = ["## Targets", "", "| server | started with | passed | failed | skipped | time |"]
    lines.append("|---|---|---|---|---|---|")
    for one in results.targets.values():
        lines.append(
            f"| {one.engine} ({one.server}) | `{one.shown}` | {one.passed} | {len(one.failed)} "
            f"| {len(one.skipped)} | {one.elapsed_s:.0f} s |"
        )
    lines += ["", "Skipped, because not offered or not to be told:", ""]
    for one in results.targets.values():
        lines.append(f"- {one.engine}: {', '.join(one.skipped) or 'nothing'}")
        if one.unchecked:
            lines.append(f"  (offered, and no check asks them: {', '.join(one.unchecked)})")
    return [*lines, ""]


def _failures(target: TargetRow) -> list[str]:
    if not target.failed:
        return []
    lines = [f"## What failed on {target.engine}", ""]
    lines += ["| check | first problem | looked at by hand |", "|---|---|---|"]
    for check, problem in target.failed.items():
        judgement = JUDGEMENTS.get((target.family, check), "**not yet looked at**")
        lines.append(f"| `{check}` | {_cell(problem)} | {judgement} |")
    return [*lines, ""]


def _faults(faults: list[FaultRow]) -> list[str]:
    if not faults:
        return []
    planted = [row for row in faults if row.name in {r.name for r in faults} - {"(nothing)"}]
    found = sum(bool(row.failed) for row in planted)
    lines = ["## Planted faults", "", f"{found} of {len(planted)} found.", ""]
    lines += ["| planted | what it does | checks that fail |", "|---|---|---|"]
    for row in faults:
        shown = ", ".join(f"`{check}`" for check in row.failed[:4]) or "none"
        more = f" and {len(row.failed) - 4} more" if len(row.failed) > 4 else ""
        lines.append(f"| {row.name} | {row.description} | {shown}{more} |")
    return [*lines, ""]


def _comparison(comparison: dict[str, Any]) -> list[str]:
    return [
        "## Our bf16 against vLLM's bf16",
        "",
        f"{comparison['prompts']} prompts, {comparison['positions']} choices after the same text: "
        f"{comparison['clear_differences']} clearly different, {comparison['ties']} ties. "
        f"Failed: {', '.join(comparison['failed']) or 'nothing'}.",
        "",
    ]


def _cell(text: str) -> str:
    short = text if len(text) <= 160 else f"{text[:160]} …"
    return short.replace("|", "\\|").replace("\n", " ")
