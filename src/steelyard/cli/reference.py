"""Writes the reference pages from the code: settings, metrics, errors and commands.

    python -m steelyard.cli.reference            writes docs/reference/*.md
    python -m steelyard.cli.reference --check    exit status 1 when a page is out of date

A page is a pure function of what it describes; guides and concepts are written by people.
"""

import argparse
import inspect
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import typer

from steelyard.cli.main import app as steelyard_app
from steelyard.contract.errors import Retry, SteelyardError
from steelyard.settings.keys import Key, dotted, keys, sections
from steelyard.settings.layers import variable_name
from steelyard.telemetry import CATALOGUE, Kind

__all__ = ["PAGES", "commands_page", "errors_page", "main", "metrics_page", "settings_page"]

_DIRECTORY = Path("docs/reference")
_NOTE = "<!-- Written by `python -m steelyard.cli.reference`; edit the code, not this page. -->"


def main(arguments: Sequence[str] | None = None) -> int:
    """Write or check all pages; the exit status."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--check", action="store_true", help="compare instead of writing")
    parser.add_argument("--directory", type=Path, default=_DIRECTORY)
    options = parser.parse_args(arguments)
    stale = [page for page in PAGES if not _is_current(options.directory / page, PAGES[page]())]
    for page in stale:
        if options.check:
            print(f"{options.directory / page} is out of date", file=sys.stderr)
        else:
            options.directory.mkdir(parents=True, exist_ok=True)
            (options.directory / page).write_text(PAGES[page](), encoding="utf-8")
            print(f"wrote {options.directory / page}")
    return 1 if options.check and stale else 0


def settings_page() -> str:
    """Every key of the deployment file, section by section."""
    groups: dict[tuple[str, ...], list[Key]] = {}
    for key in keys().values():
        groups.setdefault(key.path[:-1], []).append(key)
    parts = [_SETTINGS_INTRODUCTION]
    for path, members in groups.items():
        parts.append(f"## {dotted(path) or 'The root'}\n")
        if path:
            parts.append(f"{sections()[path]}\n")
        rows = (
            (f"`{key.path[-1]}`", key.expects, f"`{key.show(key.default)}`", key.description)
            for key in members
        )
        parts.append(_table(("key", "type", "default", "meaning"), rows))
        parts.append(f"As a variable: `{variable_name(members[0].path)}`.\n")
    return _page("Settings", parts)


def metrics_page() -> str:
    """Every metric of the catalogue."""
    parts = [_METRICS_INTRODUCTION, _table(("metric", "type", "labels", "meaning"), _metric_rows())]
    histograms = [spec for spec in CATALOGUE if spec.kind is Kind.HISTOGRAM]
    rows = ((f"`{s.name}`", ", ".join(f"{bound:g}" for bound in s.buckets)) for s in histograms)
    parts += ["## Buckets\n", _table(("histogram", "upper bounds"), rows)]
    return _page("Metrics", parts)


def errors_page() -> str:
    """Every class of the error tree."""
    rows = (
        (f"`{cls.code}`", f"`{parent.code}`", _RETRY[cls.retry], _first_paragraph(cls))
        for cls, parent in _error_tree(SteelyardError)
    )
    table = _table(("code", "a case of", "may be retried", "meaning"), rows)
    return _page("Errors", [_ERRORS_INTRODUCTION, table])


def commands_page(app: typer.Typer, name: str = "steelyard") -> str:
    """Every command below `app`, with its arguments and options."""
    command = typer.main.get_command(app)
    return _page("Commands", [_COMMANDS_INTRODUCTION, *_command_parts(command, name)])


PAGES: dict[str, Callable[[], str]] = {
    "commands.md": lambda: commands_page(steelyard_app),
    "errors.md": errors_page,
    "metrics.md": metrics_page,
    "settings.md": settings_page,
}
"""Every page by file name."""

_COMMANDS_INTRODUCTION = """\
Results go to standard output; progress, logs and errors to standard error. The exit status is 0
when the work is done, 1 after an error (the message says what to do), 2 for a wrong command line,
130 after Ctrl-C and 143 after SIGTERM. `steelyard serve` ends with 0 when a signal stops it.
"""

_SETTINGS_INTRODUCTION = """\
A deployment is described by layers; what comes later wins:

1. the defaults on this page,
2. the deployment file (`--config FILE`, or the one `STEELYARD_CONFIG` names), in YAML,
3. environment variables: `STEELYARD_` and the key in capitals, with `__` between sections
   (`STEELYARD_GATEWAY__PORT=9000`); an empty one counts as not set,
4. `--set gateway.port=9000`, and the flags that commands have for single keys.

`steelyard config show` prints every value and where it came from, `steelyard config check` says
what cannot work and how to fix it, and `steelyard config schema` helps editors. Unknown keys and
contradictions are refused. Sizes are numbers of bytes or texts such as `512MiB`. Relative paths
start at the working directory.
"""

_METRICS_INTRODUCTION = """\
`GET /metrics` answers in Prometheus' text format, or in OpenMetrics when the client asks for it.
Each label has at most 1000 values; later ones are counted as `other`. Counters start from zero
with the process of the door; those of an engine go on growing when its process is started again.
"""

_ERRORS_INTRODUCTION = """\
Every failure belongs to one of these classes. The code is stable: clients see it as `error.code`
and metrics as `reason`. `error` is the root and never raised itself.
"""

_RETRY = {
    Retry.ELSEWHERE: "now, on another replica",
    Retry.LATER: "later, at the same place",
    Retry.NEVER: "no",
}


def _is_current(path: Path, text: str) -> bool:
    return path.is_file() and path.read_text(encoding="utf-8") == text


def _page(title: str, parts: Iterable[str]) -> str:
    return "\n".join([f"# {title}\n\n{_NOTE}\n", *parts])


def _table(titles: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = [titles, ["---"] * len(titles), *rows]
    cells = ([cell.replace("|", "\\|") for cell in line] for line in lines)
    return "".join(f"| {' | '.join(line)} |\n" for line in cells)


def _metric_rows() -> Iterator[tuple[str, str, str, str]]:
    for spec in CATALOGUE:
        labels = ", ".join(f"`{label}`" for label in spec.labels)
        yield f"`{spec.name}`", spec.kind.value, labels, spec.help


def _error_tree(
    parent: type[SteelyardError],
) -> Iterator[tuple[type[SteelyardError], type[SteelyardError]]]:
    """Every class below `parent` with its own parent, depth first."""
    for cls in parent.__subclasses__():
        if cls.__module__ == SteelyardError.__module__:  # tests may define more
            yield cls, parent
            yield from _error_tree(cls)


def _first_paragraph(thing: object) -> str:
    text = inspect.getdoc(thing) or ""
    return " ".join(text.split("\n\n")[0].split())


def _command_parts(command: Any, name: str) -> Iterator[str]:
    """`command` is a click command; typer brings its own copy of click, whose types are private."""
    yield f"## {name}\n"
    if command.help:
        yield f"{inspect.cleandoc(command.help)}\n"
    shown = [p for p in command.params if p.name not in _EVERYWHERE]
    if shown:
        rows = map(_parameter_row, shown)
        yield _table(("argument or option", "default", "meaning"), rows)
    if command.epilog:
        yield "\n\n".join(map(_fenced, command.epilog.split("\n\n"))) + "\n"
    for sub in getattr(command, "commands", {}).values():
        yield from _command_parts(sub, f"{name} {sub.name}")


def _fenced(paragraph: str) -> str:
    """As a block of code if every line begins like an example of `options.examples`."""
    lines = paragraph.splitlines()
    if not all(line.startswith("$ ") for line in lines):
        return paragraph
    return "\n".join(["```sh", *(line.removeprefix("$ ") for line in lines), "```"])


_EVERYWHERE = frozenset({"help", "install_completion", "show_completion"})


def _parameter_row(parameter: Any) -> tuple[str, str, str]:
    if parameter.param_type_name == "option":
        names = ", ".join(f"`{option}`" for option in [*parameter.opts, *parameter.secondary_opts])
    else:
        names = f"`{parameter.name.upper()}`"
    is_unset = parameter.default is None or parameter.default is False
    default = "" if is_unset else f"`{parameter.default}`"
    return names, default, " ".join((parameter.help or "").split())


if __name__ == "__main__":
    sys.exit(main())
