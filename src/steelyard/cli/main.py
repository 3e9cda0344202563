"""The `steelyard` command: its sub-commands in one place. How they end is `endings`' business.

Modules of commands import what does their work when it is done, so that `--help` and completion
answer at once.
"""

from typing import Annotated

import typer
from typer.main import get_command

from steelyard.cli import bench, chat, config, drill, fleet, keys, mock, model, run, serve, verify
from steelyard.cli.endings import run_command
from steelyard.cli.options import examples

__all__ = ["app", "main"]

_EXAMPLES = examples(
    "steelyard serve",
    "steelyard run 'Why is the sky blue?'",
    "steelyard config show --changed",
    more="`steelyard COMMAND --help` tells more; "
    "`steelyard --install-completion` teaches the shell.",
)

app = typer.Typer(
    no_args_is_help=True,
    help="Serve open LLMs at the balance point of throughput and latency.",
    epilog=_EXAMPLES,
    rich_markup_mode="rich",
    context_settings={"help_option_names": ["-h", "--help"]},
    pretty_exceptions_enable=False,
)
app.command(epilog=serve.EXAMPLES)(serve.serve)
app.command(epilog=chat.EXAMPLES)(chat.chat)
app.command(epilog=run.EXAMPLES)(run.run)
app.command(epilog=verify.EXAMPLES)(verify.verify)
app.command(epilog=fleet.UP_EXAMPLES)(fleet.up)
for _order in (
    fleet.down,
    fleet.status,
    fleet.logs,
    fleet.drain,
    fleet.resume,
    fleet.restart,
    fleet.promote,
    fleet.scale,
):
    app.command()(_order)
app.add_typer(drill.app, name="drill")
app.add_typer(bench.app, name="bench")
app.add_typer(model.app, name="model")
app.add_typer(config.app, name="config")
app.add_typer(keys.app, name="keys")
app.add_typer(mock.app, name="mock")


def main() -> None:
    """Entry point of the installed command."""
    command = get_command(app)
    for parameter in command.params:
        if parameter.name in ("install_completion", "show_completion"):
            # They work, but are no part of the first thing a reader of `--help` should see.
            setattr(parameter, "hidden", True)  # noqa: B010 (typer keeps its classes to itself)
    run_command(command)


@app.callback(invoke_without_command=True)
def _top(
    version: Annotated[
        bool, typer.Option("--version", help="Print the version and end.", is_eager=True)
    ] = False,
) -> None:
    if version:
        from steelyard import __version__

        print(f"steelyard {__version__}")
        raise typer.Exit
