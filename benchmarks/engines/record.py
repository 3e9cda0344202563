"""One campaign's results: facts, rows as measured, nothing derived from several rows.

Written as JSON; `report` makes the tables from it.
"""

import copy
from pathlib import Path

import msgspec
from benchmarks.engines.engine import Dot
from benchmarks.engines.machine import Facts
from benchmarks.engines.roofline import Roofline

__all__ = ["DISTURBANCE", "Described", "Results", "Row", "load", "merge", "save"]

DISTURBANCE = 0.06
"""More of the machine's CPU time than this in other hands, and a load is measured again."""


class Described(msgspec.Struct, frozen=True):
    """An engine, as far as a report needs it."""

    key: str
    family: str
    precision: str
    settings: str
    layer_bits: float
    head_bits: float
    dot: Dot
    kv_bytes: int


class Row(msgspec.Struct):
    """One scenario on one engine in one round."""

    scenario: str
    engine: str
    round: int
    concurrency: int = 0
    figures: dict[str, float] = {}
    lists: dict[str, list[float]] = {}
    faults: list[str] = []
    """What was wrong with the answers; a row with faults counts for nothing."""
    others: float = 0.0
    """Share of all CPU time that neither engine nor client used."""
    stolen: float = 0.0
    """Share of all CPU time that the hypervisor took."""
    attempts: int = 1
    """How often it was measured until the machine was quiet enough; this is the last one."""
    client_cpu: float = 0.0
    """Cores that the client used."""
    client_wait_us: float = 0.0
    """How long the client waited for a processor when it was woken, on average."""
    engine_cpu_s: float = 0.0

    @property
    def is_disturbed(self) -> bool:
        return self.others + self.stolen > DISTURBANCE


class Results(msgspec.Struct):
    """The whole document."""

    facts: Facts
    plan: dict[str, int | float | str | bool]
    model: dict[str, int]
    """Numbers of weights and elements (`costs.ModelSize`)."""
    engines: list[Described] = []
    rooflines: list[Roofline] = []
    """One per round; the greatest values count."""
    rows: list[Row] = []
    answers: dict[str, dict[str, str]] = {}
    """Prompt → engine → greedy text."""
    more_facts: list[Facts] = []
    """Of the further campaigns that were merged in."""
    more_rooflines: list[Roofline] = []
    """Of those among them that measured no decoding: no bound for what was decoded at other times,
    when the machine's neighbours took more or less of the memory's bandwidth."""

    def of(self, scenario: str, engine: str, concurrency: int | None = None) -> list[Row]:
        """Valid rows, in order of measurement; disturbed ones only where there are no others."""
        rows = [
            row
            for row in self.rows
            if row.scenario == scenario
            and row.engine == engine
            and (concurrency is None or row.concurrency == concurrency)
            and not row.faults
        ]
        calm = [row for row in rows if not row.is_disturbed]
        return calm or rows

    def by_round(
        self, scenario: str, engine: str, figure: str, concurrency: int | None = None
    ) -> dict[int, float]:
        """Round → figure; empty where it was not measured."""
        rows = self.of(scenario, engine, concurrency)
        return {row.round: row.figures[figure] for row in rows if figure in row.figures}


def save(results: Results, path: Path) -> None:
    """Replaces the file in one step."""
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_suffix(".partial")
    partial.write_bytes(msgspec.json.format(msgspec.json.encode(results), indent=1) + b"\n")
    partial.rename(path)


def load(path: Path) -> Results:
    """Raises `msgspec.ValidationError` for a file of another version."""
    return msgspec.json.decode(path.read_bytes(), type=Results)


def merge(first: Results, *others: Results) -> Results:
    """One campaign made of several on one machine: the first, with more rounds of some scenarios.

    Raises `ValueError` when they are not about the same model on the same kind of machine.
    """
    rounds = 1 + max((row.round for row in first.rows), default=0)
    merged = copy.deepcopy(first)
    for other in others:
        same = (other.model, other.facts.cpu_model, other.facts.cpus)
        if same != (first.model, first.facts.cpu_model, first.facts.cpus):
            raise ValueError("results of another model or machine cannot be merged")
        known = {engine.key for engine in merged.engines}
        merged.engines += [engine for engine in other.engines if engine.key not in known]
        has_decoded = any(row.scenario == "decode" for row in other.rows)
        (merged.rooflines if has_decoded else merged.more_rooflines).extend(other.rooflines)
        merged.rows += [
            msgspec.structs.replace(row, round=row.round + rounds) for row in other.rows
        ]
        merged.answers = merged.answers or other.answers
        merged.more_facts += [other.facts, *other.more_facts]
        rounds += 1 + max((row.round for row in other.rows), default=0)
    return merged
