"""The `steelyard` command: its sub-commands, and how errors and Ctrl-C end it.

0    done                    2    wrong usage
1    an error, on one line   130  Ctrl-C
"""

import sys

import typer
from rich.console import Console

from steelyard import __version__
from steelyard.cli import config, model
from steelyard.cli.chat import chat
from steelyard.cli.run import run
from steelyard.cli.serve import serve
from steelyard.contract.errors import SteelyardError

__all__ = ["app", "main"]

_INTERRUPTED = 130

app = typer.Typer(
    no_args_is_help=True,
    help="Serve open LLMs at the balance point of throughput and latency.",
    pretty_exceptions_enable=False,
)
app.command()(serve)
app.command()(chat)
app.command()(run)
app.add_typer(model.app, name="model")
app.add_typer(config.app, name="config")


def main() -> None:
    """Entry point of the installed command."""
    try:
        app()
    except SteelyardError as error:
        console = Console(stderr=True, highlight=False, soft_wrap=True)
        console.print("error: ", style="bold red", end="")
        console.print(str(error), markup=False)
        sys.exit(1)
    except KeyboardInterrupt:
        sys.exit(_INTERRUPTED)


@app.callback(invoke_without_command=True)
def _top(
    version: bool = typer.Option(False, "--version", help="Print the version and end."),
) -> None:
    if version:
        print(f"steelyard {__version__}")
        raise typer.Exit
