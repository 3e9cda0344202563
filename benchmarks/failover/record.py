"""What a benchmark found, with what it was found on: JSON for machines, a table for people."""

from collections.abc import Sequence
from pathlib import Path

import msgspec
from benchmarks.engines.machine import Facts

__all__ = ["Finding", "save"]

_RESULTS = Path(__file__).parent / "results"


class Finding(msgspec.Struct, frozen=True):
    """One row of a benchmark."""

    title: str
    figures: dict[str, float]


class _Record(msgspec.Struct, frozen=True):
    facts: Facts
    command: str
    findings: list[Finding]


def save(name: str, facts: Facts, command: str, findings: Sequence[Finding]) -> str:
    """Write `results/name.json` and `.md`; the table is returned."""
    _RESULTS.mkdir(exist_ok=True)
    record = msgspec.json.format(msgspec.json.encode(_Record(facts, command, list(findings))))
    (_RESULTS / f"{name}.json").write_bytes(record + b"\n")
    text = _table(findings) + _provenance(facts, command)
    (_RESULTS / f"{name}.md").write_text(text)
    return text


def _table(findings: Sequence[Finding]) -> str:
    names = list(dict.fromkeys(name for finding in findings for name in finding.figures))
    rows = [["", *(finding.title for finding in findings)], ["---"] * (len(findings) + 1)]
    for name in names:
        rows.append([name, *(_shown(finding.figures.get(name)) for finding in findings)])
    return "".join("| " + " | ".join(row) + " |\n" for row in rows)


def _shown(value: float | None) -> str:
    return "" if value is None else f"{value:g}"


def _provenance(facts: Facts, command: str) -> str:
    hardware = f"{facts.cpus} cores of {facts.cpu_model}, {facts.memory_gib:g} GiB"
    commit = facts.commit.removesuffix("+changes")
    note = "" if commit == facts.commit else " (with changes that were not committed)"
    return f"\nHardware: {hardware}; command: `{command}`; commit: `{commit}`{note}.\n"
