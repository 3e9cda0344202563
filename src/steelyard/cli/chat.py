"""`steelyard chat`: talk to a model in the terminal.

The event loop runs only while an answer is produced; in between the terminal has the thread, so
that line editing and Ctrl-C behave as everywhere.
"""

import asyncio
import contextlib
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console

from steelyard.cli.endings import end_if_told_to, print_error
from steelyard.cli.options import (
    Config,
    ModelName,
    Sets,
    System,
    Temperature,
    Url,
    examples,
    resolve_options,
)

if TYPE_CHECKING:  # the command imports them when it runs: `--help` should not pay for them
    from steelyard.cli.talking import Message, Talker, Wishes

__all__ = ["EXAMPLES", "chat"]

EXAMPLES = examples(
    "steelyard chat",
    "steelyard chat Qwen/Qwen3-0.6B --system 'Answer in one sentence.'",
    "steelyard chat --url http://127.0.0.1:8000",
)

_HELP = "Ctrl-C stops an answer, /new forgets the conversation, /bye or Ctrl-D ends."
_PROMPT = "> "
_NEWS_S = 0.01


def chat(
    *,
    model: ModelName = None,
    config: Config = None,
    sets: Sets = None,
    url: Url = None,
    system: System = None,
    temperature: Temperature = 1.0,
    max_tokens: Annotated[
        int | None,
        typer.Option(
            min=1, metavar="COUNT", help="Longest answer. Default: what the context leaves."
        ),
    ] = None,
) -> None:
    """Talk to a model; answers appear as they are produced.

    Reads questions from standard input, one a line.
    """
    from steelyard.cli.service import new_runner
    from steelyard.cli.talking import Wishes
    from steelyard.cli.terminal import open_talker, opening_of, set_up_streams
    from steelyard.telemetry import configure_logging

    resolved = resolve_options(config, sets, [("model", model, "MODEL")])
    configure_logging(resolved.deployment.telemetry.log.format, "warning")
    opening = opening_of(system)
    talking = open_talker(resolved, url, model)
    set_up_streams()
    with new_runner() as runner:
        talker = runner.run(talking.__aenter__())
        try:
            _Chatter(runner, talker, Wishes(max_tokens, temperature), opening).main_loop()
        finally:
            runner.run(talking.__aexit__(None, None, None))


class _Chatter:
    """One conversation, from line to line."""

    def __init__(
        self,
        runner: asyncio.Runner,
        talker: "Talker",
        wishes: "Wishes",
        opening: "Sequence[Message]",
    ) -> None:
        self._runner = runner
        self._talker = talker
        self._wishes = wishes
        self._opening = opening
        self._history = list(opening)

    def main_loop(self) -> None:
        """Return when the user has said goodbye, or the input ends."""
        if _is_interactive():
            _note(_HELP)
        while (line := _read_line()) is not None:
            match line.strip():
                case "":
                    pass
                case "/bye":
                    return
                case "/new":
                    self._history = list(self._opening)
                    _note("The conversation is forgotten.")
                case "/help" | "/?":
                    _note(_HELP)
                case question:
                    self._respond(question)

    def _respond(self, question: str) -> None:
        """Print the answer as it comes, and remember it as far as it came."""
        from steelyard.contract.errors import SteelyardError

        pieces: list[str] = []
        self._history.append({"role": "user", "content": question})
        try:
            self._runner.run(self._say(pieces))
        except KeyboardInterrupt:
            end_if_told_to()
            if not _is_interactive():
                raise
            _note(" (stopped)")
        except SteelyardError as error:
            if not _is_interactive():
                raise
            if pieces:
                print()
            print_error(error)
        else:
            print()
        if pieces:
            self._history.append({"role": "assistant", "content": "".join(pieces)})
        else:
            self._history.pop()

    async def _say(self, pieces: list[str]) -> None:
        from steelyard.cli.terminal import show

        # An engine may have died while the loop stood still: let the news arrive.
        await asyncio.sleep(_NEWS_S)
        answer = self._talker.answer(self._history, self._wishes)
        async with contextlib.aclosing(answer):
            async for piece in answer:
                pieces.append(piece)
                show(piece)


def _read_line() -> str | None:
    """The next line; None at the end of the input. Ctrl-C drops the line, a second one ends all."""
    with contextlib.suppress(ImportError):
        import readline  # noqa: F401  (gives `input` line editing and history)
    prompt = _PROMPT if _is_interactive() else ""
    try:
        return input(prompt)
    except KeyboardInterrupt:
        if not prompt:
            raise
        _note(f"\n{_HELP}")
    except (EOFError, RuntimeError):  # RuntimeError: there is no standard input at all
        return None
    try:
        return input(prompt)
    except EOFError:
        return None


def _is_interactive() -> bool:
    """True when a person types, and sees what is printed."""
    return all(stream is not None and stream.isatty() for stream in (sys.stdin, sys.stdout))


def _note(text: str) -> None:
    """Say something that is no answer."""
    Console(stderr=True, highlight=False, soft_wrap=True).print(text, style="dim", markup=False)
