"""`steelyard verify`: functional acceptance of any OpenAI-compatible server, or of two.

Prints and writes what `lab.verify` found; checks nothing itself.
"""

import contextlib
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from steelyard.cli.options import examples

if TYPE_CHECKING:  # `--help` should not pay for them
    from rich.progress import Progress

    from steelyard.lab.verify import Report, Target, VerifyConfig, Watcher

__all__ = ["EXAMPLES", "verify"]

EXAMPLES = examples(
    "steelyard verify http://127.0.0.1:8000",
    "steelyard verify https://example.com/v1 --api-key-env API_KEY --junit verify.xml",
    "steelyard verify http://old:8000 http://new:8000 --only compare --json difference.json",
    "steelyard verify http://127.0.0.1:8000 --only 'stops.*' --only '*.chat' --skip context",
    "steelyard verify --list",
    more="Exit status: 0 when all that could be checked holds, 1 when something does not, 2 when "
    "a server cannot be reached or the command line is wrong.",
)

_WRONG_USAGE = 2

_Patterns = list[str] | None
_REPEATABLE = "may be repeated"


def verify(
    *,
    urls: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="URL [URL2]",
            help="A server. Of two, each is verified, and then they are compared token by token.",
        ),
    ] = None,
    models: Annotated[
        _Patterns,
        typer.Option(
            "--model",
            "-m",
            metavar="NAME",
            help="Model to verify; a second one is the second server's. Default: the first model "
            "that a server lists.",
        ),
    ] = None,
    only: Annotated[
        _Patterns,
        typer.Option(metavar="PATTERN", help=f"Checks or areas to run; {_REPEATABLE}."),
    ] = None,
    skip: Annotated[
        _Patterns,
        typer.Option(metavar="PATTERN", help=f"Checks or areas to leave out; {_REPEATABLE}."),
    ] = None,
    api_key_env: Annotated[
        str | None,
        typer.Option(metavar="NAME", help="Environment variable that holds the API key."),
    ] = None,
    timeout_s: Annotated[
        float,
        typer.Option(
            "--timeout", min=1.0, metavar="SECONDS", help="A check that takes longer has failed."
        ),
    ] = 30.0,
    concurrency: Annotated[
        int, typer.Option(min=2, metavar="COUNT", help="Requests at once, where it matters.")
    ] = 8,
    tie_nats: Annotated[
        float,
        typer.Option(
            min=0.0,
            metavar="NATS",
            help="Tokens whose log-probabilities differ by no more are tied: either may be chosen.",
        ),
    ] = 0.3,
    long_context: Annotated[
        int, typer.Option(min=64, metavar="TOKENS", help="No prompt is longer than this.")
    ] = 16_384,
    json_file: Annotated[
        Path | None, typer.Option("--json", metavar="FILE", help="Write the report as JSON.")
    ] = None,
    junit_file: Annotated[
        Path | None, typer.Option("--junit", metavar="FILE", help="Write it as JUnit XML.")
    ] = None,
    list_checks: Annotated[
        bool, typer.Option("--list", help="Print what can be checked, and end.")
    ] = False,
) -> None:
    """Check everything that one or two OpenAI-compatible servers offer.

    A check passes, fails, or is skipped because the server does not offer what it is about; a
    skipped check proves nothing. Sends some hundred small requests.
    """
    from steelyard.contract.errors import SteelyardError
    from steelyard.lab.verify import VerifyConfig

    config = VerifyConfig(
        only=tuple(only or ()),
        skip=tuple(skip or ()),
        check_timeout_s=timeout_s,
        concurrency=concurrency,
        tie_nats=tie_nats,
        long_context_tokens=long_context,
    )
    try:
        if list_checks:
            _print_checks(config)
            return
        targets = _targets(urls or (), models or (), api_key_env)
        report = _run(targets, config)
    except SteelyardError as error:
        from steelyard.cli.endings import print_error

        print_error(error)
        raise typer.Exit(_WRONG_USAGE) from error
    _write(report, json_file, junit_file)
    from steelyard.cli.verify_report import print_report

    print_report(report)
    if not report.is_passed:
        raise typer.Exit(1)


def _targets(urls: Sequence[str], models: Sequence[str], api_key_env: str | None) -> "list[Target]":
    from steelyard.lab.verify import read_target

    if not 1 <= len(urls) <= 2:
        raise typer.BadParameter("name one server, or two", param_hint="URL")
    if len(models) > len(urls):
        raise typer.BadParameter("there are more models than servers", param_hint="--model")
    names = [*models, *[models[0] if models else None] * (len(urls) - len(models))]
    key = _api_key(api_key_env)
    return [
        read_target(url, model=name, api_key=key) for url, name in zip(urls, names, strict=True)
    ]


def _api_key(variable: str | None) -> str | None:
    from steelyard.settings.paths import environment

    if variable is None:
        return None
    key = environment().get(variable)
    if not key:
        raise typer.BadParameter(f"{variable} is not set", param_hint="--api-key-env")
    return key


def _run(targets: "Sequence[Target]", config: "VerifyConfig") -> "Report":
    from steelyard.cli.service import new_runner
    from steelyard.lab.verify import verify as run_verification

    with _progress() as watcher, new_runner() as runner:
        return runner.run(run_verification(targets, config, watcher))


@contextlib.contextmanager
def _progress() -> "Iterator[Watcher]":
    """A bar on a terminal; nothing anywhere else."""
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn

    from steelyard.lab.verify import Watcher

    console = Console(stderr=True)
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn())
    with Progress(
        *columns, console=console, transient=True, disable=not console.is_terminal
    ) as progress:
        yield _watcher(progress, Watcher)


def _watcher(progress: "Progress", make: "type[Watcher]") -> "Watcher":
    task = progress.add_task("Asking what is offered", total=None)

    def on_start(what: str, checks: int) -> None:
        progress.reset(task, description=what, total=checks)

    return make(on_start=on_start, on_finding=lambda finding: progress.advance(task))


def _write(report: "Report", json_file: Path | None, junit_file: Path | None) -> None:
    from steelyard.lab.verify import junit_xml, to_json

    for file, render in ((json_file, to_json), (junit_file, junit_xml)):
        if file is not None:
            file.write_bytes(render(report))


def _print_checks(config: "VerifyConfig") -> None:
    from steelyard.lab.verify import all_claims, select

    for claim in select(all_claims(), config.only, config.skip):
        sys.stdout.write(f"{claim.name:<28} {claim.proves}\n")
