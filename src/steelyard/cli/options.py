"""Options that several commands share, how they become settings, and how examples are written."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:  # `--help` should not pay for them
    from steelyard.settings import Resolved

__all__ = [
    "Config",
    "ModelName",
    "Sets",
    "System",
    "Temperature",
    "Url",
    "examples",
    "resolve_options",
]

ModelName = Annotated[
    str | None,
    typer.Argument(
        metavar="MODEL",
        help="A name from `steelyard model list`, a directory or .gguf file, or org/name of the "
        "Hugging Face hub. Default: the deployment file's, else smollm2-135m.",
    ),
]

Config = Annotated[
    Path | None,
    typer.Option(
        "--config",
        "-c",
        metavar="FILE",
        help="Deployment file. Default: the one in STEELYARD_CONFIG.",
    ),
]

Sets = Annotated[
    list[str] | None,
    typer.Option(
        "--set",
        metavar="KEY=VALUE",
        help="Set one key, such as gateway.port=9000; may be repeated. "
        "`steelyard config show` lists them.",
    ),
]

Url = Annotated[
    str | None,
    typer.Option(
        "--url",
        metavar="URL",
        help="Ask a running server, such as http://127.0.0.1:8000, instead of an engine of our "
        "own. Without a model's name, its first model.",
    ),
]

System = Annotated[str | None, typer.Option("--system", metavar="TEXT", help="System prompt.")]

Temperature = Annotated[
    float,
    typer.Option(
        "--temperature",
        metavar="NUMBER",
        min=0.0,
        max=2.0,
        help="From 0, which always takes the most likely token, to 2.",
    ),
]


def examples(*lines: str, more: str = "") -> str:
    """The end of a command's help: lines for a shell, and maybe a sentence."""
    text = "Examples:\n\n" + "\n".join(f"$ {line}" for line in lines)
    return f"{text}\n\n{more}" if more else text


def resolve_options(
    config: Path | None,
    sets: list[str] | None,
    flags: Sequence[tuple[str, object, str]],
) -> "Resolved":
    """The settings of a command. `flags` are keys, their values (None: not given) and names.

    Raises `SettingsError` with every problem.
    """
    from steelyard.settings import Flag, resolve

    return resolve(file=config, sets=sets or (), flags=[Flag(*flag) for flag in flags])
