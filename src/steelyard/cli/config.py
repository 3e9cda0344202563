"""`steelyard config`: show the settings, check a deployment file, print its schema.

Prints what `settings` finds out; starts nothing and changes nothing.
"""

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console
from rich.table import Table

if TYPE_CHECKING:  # the commands import them when they run: `--help` should not pay for them
    from steelyard.settings import Problem, Resolved

__all__ = ["app"]

app = typer.Typer(no_args_is_help=True, help="Show, check and describe the settings.")

_Config = Annotated[
    Path | None,
    typer.Option("--config", "-c", help="Deployment file. Default: the one in STEELYARD_CONFIG."),
]
_Sets = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="KEY=VALUE", help="Set one key, such as gateway.port=9000."),
]


@app.command()
def show(
    config: _Config = None,
    sets: _Sets = None,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object.")] = False,
    as_yaml: Annotated[
        bool, typer.Option("--yaml", help="A deployment file that says the same.")
    ] = False,
    changed: Annotated[bool, typer.Option("--changed", help="Leave defaults out.")] = False,
) -> None:
    """Print every value and where it came from.

    Layers: defaults < file < environment (STEELYARD_GATEWAY__PORT=9000) < --set.
    """
    if as_json and as_yaml:
        raise typer.BadParameter("--json and --yaml exclude each other")
    resolved = _examined(config, sets or [])
    if as_json:
        typer.echo(json.dumps(_as_json(resolved, changed), indent=2))
    elif as_yaml:
        typer.echo(_as_yaml(resolved, changed), nl=False)
    else:
        _print_table(resolved, changed)


@app.command()
def check(
    file: Annotated[
        Path | None,
        typer.Argument(help="Deployment file. Default: the one in STEELYARD_CONFIG."),
    ] = None,
    sets: _Sets = None,
) -> None:
    """Say everything that cannot work. Exit status: 0 if nothing, else 1."""
    _examined(file, sets or [])
    typer.echo("The settings can work.")


@app.command()
def schema() -> None:
    """Print the JSON Schema of the deployment file, for editors.

    Keep it in a file and begin the deployment file with the line
    `# yaml-language-server: $schema=steelyard.schema.json`.
    """
    from steelyard.settings import Deployment

    document = {"$schema": "https://json-schema.org/draft/2020-12/schema"}
    typer.echo(json.dumps(document | Deployment.model_json_schema(), indent=2))


def _examined(file: Path | None, sets: list[str]) -> "Resolved":
    """The settings; ends the command with status 1 and all problems when there are any."""
    from steelyard.settings import examine

    examination = examine(file=file, sets=sets)
    if examination.resolved is None:
        _print_problems(examination.problems)
        raise typer.Exit(1)
    return examination.resolved


def _print_problems(problems: "tuple[Problem, ...]") -> None:
    console = Console(stderr=True, highlight=False, soft_wrap=True)
    for problem in problems:
        console.print(problem.path, style="bold red", end=": ", markup=False)
        console.print(problem.detail, markup=False)
    noun = "problem" if len(problems) == 1 else "problems"
    console.print(f"{len(problems)} {noun}.", markup=False)


def _print_table(resolved: "Resolved", changed: bool) -> None:
    table = Table(box=None, pad_edge=False)
    for title in ("key", "value", "from"):
        table.add_column(title, overflow="fold")
    for row in resolved.as_rows():
        is_default = row.is_default
        if not (changed and is_default):
            table.add_row(
                row.key.name, row.text, str(row.source), style="dim" if is_default else ""
            )
    Console(highlight=False).print(table)


def _as_json(resolved: "Resolved", changed: bool) -> dict[str, Any]:
    return {
        row.key.name: {"value": row.value, "from": str(row.source), "layer": row.source.kind.value}
        for row in resolved.as_rows()
        if not (changed and row.is_default)
    }


def _as_yaml(resolved: "Resolved", changed: bool) -> str:
    import yaml  # 20 ms that nothing else needs

    tree: dict[str, Any] = {}
    for row in resolved.as_rows():
        if changed and row.is_default:
            continue
        branch = tree
        for name in row.key.path[:-1]:
            branch = branch.setdefault(name, {})
        value = list(row.value) if isinstance(row.value, tuple) else row.value
        branch[row.key.path[-1]] = row.text if row.key.is_size else value
    return yaml.safe_dump(tree, sort_keys=False, allow_unicode=True) if tree else ""
