"""Options that several commands share, and how they become settings."""

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer

from steelyard.settings import Flag, Resolved, resolve

__all__ = ["TEMPERATURE_HELP", "Config", "ModelName", "Sets", "resolve_options"]

ModelName = Annotated[
    str | None,
    typer.Argument(
        metavar="[MODEL]",
        help="A name from `steelyard model list`, a directory or .gguf file, or org/name of the "
        "Hugging Face hub. Default: the deployment file's, else smollm2-135m.",
    ),
]

Config = Annotated[
    Path | None,
    typer.Option("--config", "-c", help="Deployment file. Default: the one in STEELYARD_CONFIG."),
]

Sets = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="KEY=VALUE", help="Set one key, such as gateway.port=9000."),
]

TEMPERATURE_HELP = "0 always takes the most likely token; more makes answers more varied."


def resolve_options(
    model: str | None,
    config: Path | None,
    sets: list[str] | None,
    flags: Sequence[Flag] = (),
) -> Resolved:
    """The settings of a command. Raises `SettingsError` with every problem."""
    named = Flag("model", model, "MODEL")
    return resolve(file=config, sets=sets or (), flags=[named, *flags])
