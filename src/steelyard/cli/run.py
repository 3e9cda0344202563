"""`steelyard run`: one prompt, one answer, no server."""

import contextlib
import sys
from typing import Annotated

import typer

from steelyard.cli.options import (
    Config,
    Sets,
    System,
    Temperature,
    Url,
    examples,
    resolve_options,
)

__all__ = ["EXAMPLES", "run"]

EXAMPLES = examples(
    "steelyard run 'Why is the sky blue?'",
    "git diff | steelyard run - --system 'Summarise this change.' --max-tokens 60",
    "steelyard run --raw 'Once upon a time' --temperature 1",
    "steelyard run hello --url http://127.0.0.1:8000",
)


def run(
    *,
    prompt: Annotated[
        str, typer.Argument(metavar="PROMPT", help="The prompt; - reads it from standard input.")
    ],
    model: Annotated[
        str | None,
        typer.Option(
            "--model", "-m", metavar="MODEL", help="As the argument of `steelyard serve`."
        ),
    ] = None,
    config: Config = None,
    sets: Sets = None,
    url: Url = None,
    system: System = None,
    raw: Annotated[
        bool, typer.Option("--raw", help="Continue the text as it is, without chat template.")
    ] = False,
    temperature: Temperature = 0.0,
    max_tokens: Annotated[int, typer.Option(min=1, metavar="COUNT", help="Longest answer.")] = 256,
    seed: Annotated[
        int | None, typer.Option(metavar="NUMBER", help="Makes a random answer repeatable.")
    ] = None,
) -> None:
    """Answer one prompt on standard output, and end.

    Nothing but the answer is written there.
    """
    from steelyard.cli.service import run_in_loop
    from steelyard.cli.talking import Wishes
    from steelyard.cli.terminal import open_talker, opening_of, set_up_streams, show
    from steelyard.telemetry import configure_logging

    if raw and system is not None:
        raise typer.BadParameter("--raw leaves no place for --system")
    resolved = resolve_options(config, sets, [("model", model, "--model")])
    configure_logging(resolved.deployment.telemetry.log.format, "warning")
    question = _question(prompt)
    messages = [*opening_of(system), {"role": "user", "content": question}]
    wishes = Wishes(max_tokens=max_tokens, temperature=temperature, seed=seed)
    talking = open_talker(resolved, url, model)
    set_up_streams()

    async def answer() -> None:
        async with talking as talker:
            pieces = talker.complete(question, wishes) if raw else talker.answer(messages, wishes)
            # Closed before the engine is, which would otherwise finish an answer nobody reads.
            async with contextlib.aclosing(pieces):
                async for piece in pieces:
                    show(piece)
            show("\n")

    run_in_loop(answer())


def _question(prompt: str) -> str:
    from steelyard.cli.terminal import require_text
    from steelyard.contract.errors import InvalidRequest

    if prompt != "-":
        return require_text(prompt, "PROMPT")
    if sys.stdin is None:
        raise InvalidRequest("is closed", param="standard input")
    try:
        return sys.stdin.buffer.read().decode()
    except UnicodeDecodeError as error:
        raise InvalidRequest("is not UTF-8", param="standard input") from error
