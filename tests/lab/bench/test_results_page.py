"""`docs/bench-results.md` explains every field that is written."""

import re
from pathlib import Path

import msgspec
import pytest

from steelyard.lab.result import METRICS, SCHEMA, RunResult
from steelyard.lab.series import SERIES_SCHEMAS, Curve, Repeats, Stress, Sweep

PAGE = (Path(__file__).parents[3] / "docs" / "bench-results.md").read_text()
EXPLAINED = set(re.findall(r"`([\w./]+)`", PAGE))

STRUCTS = (RunResult, Curve, Sweep, Stress, Repeats)
ELSEWHERE = {"TokenScale", "Workload"}
"""Explained by `docs/bench.md`: they say what the options say."""


def structs_of(kind: type[msgspec.Struct], seen: set[type]) -> None:
    """The struct and all that it consists of."""
    if kind in seen or kind.__name__ in ELSEWHERE:
        return
    seen.add(kind)
    for field in msgspec.structs.fields(kind):
        for inner in _inside(field.type):
            structs_of(inner, seen)


def _inside(annotation: object) -> list[type[msgspec.Struct]]:
    if isinstance(annotation, type) and issubclass(annotation, msgspec.Struct):
        return [annotation]
    return [one for part in getattr(annotation, "__args__", ()) for one in _inside(part)]


@pytest.mark.parametrize("kind", STRUCTS)
def test_every_field_is_explained(kind: type[msgspec.Struct]) -> None:
    seen: set[type] = set()
    structs_of(kind, seen)
    fields = {field for struct in seen for field in struct.__struct_fields__}
    assert not fields - EXPLAINED


def test_metrics_and_schemas_are_named() -> None:
    assert {*METRICS, *SERIES_SCHEMAS} <= EXPLAINED
    assert f"`{SCHEMA}`" in PAGE
    assert all(f"| `{name}` | {meaning} |" in PAGE for name, meaning in METRICS.items())
