"""`steelyard run`: one prompt, one answer, no server."""

import sys
from typing import Annotated

import typer

from steelyard.cli.options import TEMPERATURE_HELP, Config, Sets, resolve_options
from steelyard.telemetry import configure_logging

__all__ = ["run"]


def run(
    prompt: Annotated[str, typer.Argument(help="The prompt; - reads it from standard input.")],
    *,
    model: Annotated[
        str | None, typer.Option("--model", "-m", help="As the argument of `steelyard serve`.")
    ] = None,
    config: Config = None,
    sets: Sets = None,
    raw: Annotated[
        bool, typer.Option(help="Continue the text as it is, without the chat template.")
    ] = False,
    temperature: Annotated[float, typer.Option(min=0.0, max=2.0, help=TEMPERATURE_HELP)] = 0.0,
    max_tokens: Annotated[int, typer.Option(min=1, help="Longest answer.")] = 256,
    seed: Annotated[int | None, typer.Option(help="Makes a random answer repeatable.")] = None,
) -> None:
    """Answer one prompt on standard output and end.

    Examples:

        steelyard run "Why is the sky blue?"

        git diff | steelyard run - --max-tokens 60
    """
    # Imported here, because `--help` should not pay for them.
    from steelyard.cli.loading import load_files
    from steelyard.cli.service import private_engine, run_in_loop
    from steelyard.cli.talking import EngineTalker, Wishes

    resolved = resolve_options(model, config, sets)
    configure_logging(resolved.deployment.telemetry.log.format, "error")
    question = sys.stdin.read() if prompt == "-" else prompt
    wishes = Wishes(max_tokens=max_tokens, temperature=temperature, seed=seed)

    async def answer() -> None:
        files = load_files(resolved)
        async with private_engine(resolved, files) as served:
            talker = EngineTalker(served.engine, files.text)
            messages = [{"role": "user", "content": question}]
            pieces = (
                talker.complete(files.text.encode(question), wishes)
                if raw
                else talker.answer(messages, wishes)
            )
            async for piece in pieces:
                print(piece, end="", flush=True)
            print()

    run_in_loop(answer())
