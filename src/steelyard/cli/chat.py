"""`steelyard chat`: talk to a model in the terminal.

The event loop runs only while an answer is produced; in between the terminal has the thread, so
that line editing and Ctrl-C behave as everywhere.
"""

import asyncio
import contextlib
import sys
from collections.abc import AsyncIterator
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console

from steelyard.cli.options import TEMPERATURE_HELP, Config, ModelName, Sets, resolve_options
from steelyard.contract.errors import SteelyardError
from steelyard.settings import Resolved
from steelyard.telemetry import configure_logging

if TYPE_CHECKING:  # the command imports them when it runs: `--help` should not pay for them
    from steelyard.cli.talking import Message, Talker, Wishes

__all__ = ["chat"]

_HELP = "Ctrl-C stops an answer, /new forgets the conversation, /bye or Ctrl-D ends."


def chat(
    model: ModelName = None,
    *,
    config: Config = None,
    sets: Sets = None,
    url: Annotated[
        str | None, typer.Option(help="Talk to a running server, such as http://127.0.0.1:8000.")
    ] = None,
    system: Annotated[str | None, typer.Option(help="System prompt.")] = None,
    temperature: Annotated[float, typer.Option(min=0.0, max=2.0, help=TEMPERATURE_HELP)] = 1.0,
    max_tokens: Annotated[int | None, typer.Option(min=1, help="Longest answer.")] = None,
) -> None:
    """Talk to a model; the answer appears as it is produced.

    Examples:

        steelyard chat

        steelyard chat --url http://127.0.0.1:8000 --system "Answer in one sentence."
    """
    from steelyard.cli.service import new_runner
    from steelyard.cli.talking import Wishes

    resolved = resolve_options(model, config, sets)
    configure_logging(resolved.deployment.telemetry.log.format, "error")
    with new_runner() as runner:
        context = _talker(resolved, url)
        talker = runner.run(context.__aenter__())
        try:
            wishes = Wishes(max_tokens=max_tokens, temperature=temperature)
            _converse(runner, talker, wishes, system)
        finally:
            runner.run(context.__aexit__(None, None, None))


@contextlib.asynccontextmanager
async def _talker(resolved: Resolved, url: str | None) -> "AsyncIterator[Talker]":
    from steelyard.cli.talking import EngineTalker, RemoteTalker

    if url is not None:
        import aiohttp

        async with aiohttp.ClientSession() as session:
            yield RemoteTalker(session, url, resolved.deployment.served_as)
        return
    from steelyard.cli.loading import load_files
    from steelyard.cli.service import private_engine

    files = load_files(resolved)
    async with private_engine(resolved, files) as served:
        yield EngineTalker(served.engine, files.text)


def _converse(
    runner: asyncio.Runner, talker: "Talker", wishes: "Wishes", system: str | None
) -> None:
    console = Console(highlight=False, soft_wrap=True)
    start = [] if system is None else [{"role": "system", "content": system}]
    history = list(start)
    if sys.stdin.isatty():
        console.print(_HELP, style="dim")
    while (line := _read_line()) is not None:
        if line == "/new":
            history = list(start)
        elif line:
            history.append({"role": "user", "content": line})
            _answer(runner, console, talker, history, wishes)


def _answer(
    runner: asyncio.Runner,
    console: Console,
    talker: "Talker",
    history: "list[Message]",
    wishes: "Wishes",
) -> None:
    """Print an answer as it comes and add it to `history`, as far as it came."""
    pieces: list[str] = []

    async def say() -> None:
        answer = talker.answer(history, wishes)
        async with contextlib.aclosing(answer):  # type: ignore[type-var]
            async for piece in answer:
                pieces.append(piece)
                print(piece, end="", flush=True)

    try:
        runner.run(say())
    except KeyboardInterrupt:
        console.print(" (stopped)", style="dim", end="")
    except SteelyardError as error:
        console.print(f"\nerror: {error}", style="red", markup=False, end="")
    print()
    if pieces:
        history.append({"role": "assistant", "content": "".join(pieces)})
    else:
        history.pop()


def _read_line() -> str | None:
    """The next line; None at the end, however the user ends it."""
    with contextlib.suppress(ImportError):
        import readline  # noqa: F401  (gives `input` line editing and history)
    try:
        line = input("> " if sys.stdin.isatty() else "").strip()
    except (EOFError, KeyboardInterrupt):
        print()
        return None
    return None if line == "/bye" else line
