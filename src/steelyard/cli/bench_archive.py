"""How the commands of `steelyard bench` that judge find results: files, the archive, its sets."""

from contextlib import AbstractContextManager
from pathlib import Path

import typer

from steelyard.contract.errors import InvalidRequest
from steelyard.lab.judge import Archive, Entry, StoredSide, fingerprint_of, read_any_result, runs_of
from steelyard.lab.judge.stored_results import Result, result_kind
from steelyard.lab.judge.survey import survey_server
from steelyard.lab.result import RunResult
from steelyard.settings.paths import default_data_dir

__all__ = ["any_result", "keep", "open_archive", "read_side", "write_text"]


def open_archive(path: Path | None) -> AbstractContextManager[Archive]:
    """The one that was named, or the user's own."""
    return Archive.open(path or default_data_dir() / "archive.sqlite")


def keep(store: Archive, text: str, facts: list[str] | None, note: str) -> Entry:
    """Store the result of a file; find the one that an id means."""
    if not Path(text).is_file():
        entry = store.find(text)
        if not facts and not note:
            return entry
        result = store.load(entry)
    else:
        result = read_any_result(Path(text))
    runs = runs_of(result)
    return store.store(result, fingerprint_of(runs, _facts(runs[0], facts)), note=note)


def any_result(text: str, archive: Path | None) -> Result:
    """A file, or a stored result."""
    if Path(text).is_file():
        return read_any_result(Path(text))
    with open_archive(archive) as store:
        return store.load(store.find(text))


def read_side(text: str, store: Archive, facts: list[str] | None) -> StoredSide:
    """A file, a set or a stored result, by which of them there is."""
    if Path(text).is_file():
        result = read_any_result(Path(text))
        runs, entry = _alike_runs(text, result), store.entry_of(result)
        if entry is not None and not facts:
            return StoredSide(text, runs, entry.fingerprint)
        return StoredSide(text, runs, fingerprint_of(runs, _facts(runs[0], facts)))
    entries = store.members(text) or [store.find(text)]
    stored = [run for entry in entries for run in _alike_runs(text, store.load(entry))]
    return StoredSide(text, tuple(stored), entries[0].fingerprint)


def write_text(path: Path, text: str) -> None:
    """Raises `InvalidRequest` when the file cannot be written."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    except OSError as error:
        raise InvalidRequest(error.strerror or str(error), param=str(path)) from error


def _alike_runs(text: str, result: Result) -> tuple[RunResult, ...]:
    """Runs of the same load; the points of a curve are none."""
    kind = result_kind(result)
    if kind not in ("run", "repeats"):
        raise InvalidRequest(
            f"is a {kind}: its runs have different loads", param=text, fix="compare runs or repeats"
        )
    return tuple(runs_of(result))


def _facts(run: RunResult, given: list[str] | None) -> dict[str, str]:
    facts = survey_server(run.target.url, since_unix_s=run.started_unix_s)
    for text in given or ():
        name, equals, value = text.partition("=")
        if not equals:
            raise typer.BadParameter(f"{text!r}: write NAME=VALUE", param_hint="--fact")
        facts[name.strip()] = value.strip()
    return facts
