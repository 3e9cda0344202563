"""Lays the layers over each other, judges the result, and remembers where every value came from.

One idea: an entry that cannot stand (unknown key, value of the wrong type) is reported and taken
out, and whatever lies under it is judged in its place, so that one run reports every problem.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path as FilePath
from typing import Any

from pydantic import ValidationError

from steelyard.contract.errors import SettingsError
from steelyard.settings.deployment import Deployment
from steelyard.settings.keys import (
    ANY,
    Key,
    Path,
    dotted,
    find_key,
    is_name,
    keys,
    pattern,
    sections,
)
from steelyard.settings.layers import (
    Entry,
    Flag,
    Layer,
    Source,
    SourceKind,
    from_environment,
    from_flags,
    from_sets,
    variable_name,
)
from steelyard.settings.paths import default_cache_dir, environment, expanded, named_file
from steelyard.settings.problems import (
    Problem,
    as_error,
    printable,
    shown,
    unavailable_value,
    unknown_key,
)
from steelyard.settings.quantities import BadValue
from steelyard.settings.rules import contradictions

__all__ = ["Examination", "Resolved", "Row", "examine", "resolve"]

_DEFAULT = Source(SourceKind.DEFAULT)


@dataclass(frozen=True, slots=True)
class Row:
    """One value for people: as it would be written, and where it came from."""

    key: Key
    value: object
    source: Source

    @property
    def text(self) -> str:
        return self.key.show(self.value)

    @property
    def is_default(self) -> bool:
        return self.source.kind is SourceKind.DEFAULT


@dataclass(frozen=True, slots=True)
class Resolved:
    """A deployment that can work."""

    deployment: Deployment
    cache_dir: FilePath
    """`cache_dir` with `null` and `~` resolved. It need not exist yet."""
    sources: Mapping[Path, Source]
    """Of every value that is not a default."""

    def provenance(self, path: str) -> Source:
        """Where the value of a key, such as `gateway.port`, was said. `KeyError` for no key."""
        if (key := find_key(tuple(path.split(".")))) is None:
            raise KeyError(path)
        return self.sources.get(key.path, _DEFAULT)

    def as_rows(self) -> list[Row]:
        """Every value with its source, in the order of the file."""
        found = (
            replace(key, path=path) for key in keys().values() for path in self._paths(key.path)
        )
        return [
            Row(key, _value_at(self.deployment, key.path), self.sources.get(key.path, _DEFAULT))
            for key in found
        ]

    def _paths(self, path: Path) -> Iterator[Path]:
        """`path` itself, or one for each name that this deployment has in the place of `ANY`."""
        if ANY not in path:
            yield path
            return
        at = path.index(ANY)
        for name in _value_at(self.deployment, path[:at]):  # type: ignore[attr-defined]
            yield (*path[:at], name, *path[at + 1 :])


@dataclass(frozen=True, slots=True)
class Examination:
    """What came of reading all layers: a deployment, or why there is none."""

    resolved: Resolved | None
    """None when there are problems."""
    problems: tuple[Problem, ...]


def resolve(
    *,
    file: FilePath | None = None,
    sets: Sequence[str] = (),
    flags: Sequence[Flag] = (),
    environ: Mapping[str, str] | None = None,
) -> Resolved:
    """The deployment that defaults < file < environment < `--set` < flags describe.

    `file` None takes the one `STEELYARD_CONFIG` names, if any; `environ` None is the process's own.
    Raises `SettingsError` that lists every problem.
    """
    examination = examine(file=file, sets=sets, flags=flags, environ=environ)
    if examination.resolved is None:
        raise as_error(examination.problems)
    return examination.resolved


def examine(
    *,
    file: FilePath | None = None,
    sets: Sequence[str] = (),
    flags: Sequence[Flag] = (),
    environ: Mapping[str, str] | None = None,
) -> Examination:
    """As `resolve`, with the problems as data instead of an exception."""
    environ = environment() if environ is None else environ
    file = file or named_file(environ)
    layers = [from_environment(environ), from_sets(sets), from_flags(flags)]
    if file is not None:
        from steelyard.settings.yaml_file import from_file  # 20 ms that no other layer needs

        layers.insert(0, from_file(file))
    problems = [problem for layer in layers for problem in layer.problems]
    stacks = _stack(layers, problems)
    deployment, wrong = _validate(stacks, problems)
    _judge(deployment, stacks, wrong, problems)
    cache_dir = _cache_dir(deployment, environ, problems)
    if problems or cache_dir is None:
        return Examination(None, tuple(problems))
    sources = {path: stack[-1].source for path, stack in stacks.items()}
    return Examination(Resolved(deployment, cache_dir, sources), ())


_Stacks = dict[Path, list[Entry]]
"""For every key that some layer sets, what they say; the last entry counts."""


def _stack(layers: Iterable[Layer], problems: list[Problem]) -> _Stacks:
    """Sort entries by key; those that are for no key become problems."""
    stacks: _Stacks = {}
    for entry in (entry for layer in layers for entry in layer.entries):
        key = find_key(entry.path)
        if key is None or not _is_named_well(entry.path):
            problems.append(_misplaced(entry))
            continue
        value = entry.typed(key)
        stacks.setdefault(entry.path, []).append(Entry(entry.path, value, entry.source))
    return stacks


def _misplaced(entry: Entry) -> Problem:
    where = str(entry.source)
    spell = variable_name if entry.source.kind is SourceKind.ENVIRONMENT else dotted
    if not _is_named_well(entry.path):
        fix = "use up to 128 letters, digits and any of . _ : @ / + -"
        return Problem(printable(entry.path), "has a name that cannot be used", fix, where)
    section = pattern(entry.path)
    if section not in sections():
        return unknown_key(entry.path, where, spell)
    first = next(path for path in keys() if path[: len(section)] == section)
    fix = f"set its keys, such as {spell(first)}"
    return Problem(dotted(entry.path), "is a section, not a value", fix, where)


def _is_named_well(path: Path) -> bool:
    form = pattern(path)
    return ANY not in form or is_name(path[form.index(ANY)])


def _validate(stacks: _Stacks, problems: list[Problem]) -> tuple[Deployment, set[str]]:
    """A deployment of the entries that are valid; the others become problems and are named.

    Ends, because every round takes at least one entry out and the defaults alone are valid.
    """
    wrong: set[str] = set()
    while True:
        try:
            return Deployment.model_validate(_tree(stacks)), wrong
        except ValidationError as error:
            for path, own in _reasons(error).items():
                entry = stacks[path].pop()
                if not stacks[path]:
                    del stacks[path]
                problems.append(_bad_value(entry, own))
                wrong.add(dotted(path))


def _tree(stacks: _Stacks) -> dict[str, Any]:
    tree: dict[str, Any] = {}
    for path, stack in stacks.items():
        branch = tree
        for name in path[:-1]:
            branch = branch.setdefault(name, {})
        branch[path[-1]] = stack[-1].value
    return tree


def _reasons(error: ValidationError) -> dict[Path, BadValue | None]:
    """Every key at fault, with what our own validator said; None when it was pydantic's."""
    reasons: dict[Path, BadValue | None] = {}
    for detail in error.errors(include_url=False, include_input=False):
        location = tuple(str(part) for part in detail["loc"])
        prefixes = (location[:end] for end in range(1, len(location) + 1))
        path = next(prefix for prefix in prefixes if find_key(prefix) is not None)
        own = detail.get("ctx", {}).get("error")
        reasons[path] = own if isinstance(own, BadValue) else reasons.get(path)
    return reasons


def _bad_value(entry: Entry, own: BadValue | None) -> Problem:
    key = find_key(entry.path)
    assert key is not None, "entries that are for no key were taken out"
    reason, fix = "is not valid here", f"use {key.expects}"
    if unavailable := unavailable_value(entry.path, entry.value):
        reason, fix = unavailable
    elif own is not None:
        reason, fix = own.reason, own.fix or fix
    elif key.types <= {"string", "null"} and isinstance(entry.value, bool | int | float):
        fix += ", in quotes"
    value = shown(entry.path, entry.value)
    return Problem(key.name, f"{value} {reason}", fix, str(entry.source))


def _judge(
    deployment: Deployment, stacks: _Stacks, wrong: set[str], problems: list[Problem]
) -> None:
    for found in contradictions(deployment):
        if wrong.isdisjoint(found.paths):
            where = _said(found.paths, stacks)
            problems.append(Problem(found.paths[0], found.reason, found.fix, where))


def _cache_dir(
    deployment: Deployment, environ: Mapping[str, str], problems: list[Problem]
) -> FilePath | None:
    """The folder for models and kernels; None, and a problem, when there is none."""
    if deployment.cache_dir is not None:
        return expanded(deployment.cache_dir)
    try:
        return default_cache_dir(environ)
    except SettingsError as error:
        problems.append(Problem("cache_dir", error.message, error.fix))
        return None


def _said(paths: Iterable[str], stacks: _Stacks) -> str:
    """Where the keys of a contradiction were said, the defaults left out."""
    known = (stacks.get(tuple(path.split("."))) for path in paths)
    return ", ".join(dict.fromkeys(str(stack[-1].source) for stack in known if stack))


def _value_at(deployment: Deployment, path: Path) -> object:
    value: object = deployment
    for name in path:
        value = value[name] if isinstance(value, dict) else getattr(value, name)
    return value
