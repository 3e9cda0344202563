"""`steelyard bench compare`: two results, or two servers in turns."""

from typing import TYPE_CHECKING

import typer

from steelyard.cli.bench_flags import ContentFlags
from steelyard.cli.bench_judge_flags import BlockFlags, CompareFlags, JudgeOutputFlags
from steelyard.cli.options import examples

if TYPE_CHECKING:  # `--help` should not pay for them
    from steelyard.lab.bench.session import SessionOptions
    from steelyard.lab.judge import BlockOptions, Comparison

__all__ = ["COMPARE_EXAMPLES", "compare"]

WORSE = 4

COMPARE_EXAMPLES = examples(
    "steelyard bench compare http://127.0.0.1:8000 http://127.0.0.1:8001 --rate 4 --groups 12",
    "steelyard bench compare before.json after.json --unlike engine_version",
    "steelyard bench compare monthly 14 --html compared.html",
    more="Exit status: 4 when B is worse, 0 when it is better, alike or nobody can say, 3 when the "
    "measurement is INVALID; 1 and 2 for errors and wrong usage.",
)


def compare(
    what: CompareFlags, blocks: BlockFlags, content: ContentFlags, output: JudgeOutputFlags
) -> None:
    """Say whether B is worse or better than A, or that nobody can tell yet.

    Every percentile gets an interval, and all intervals hold together. Two servers are measured in
    interleaved blocks, so that what drifts on the machine counts for both.
    """
    from rich.console import Console

    from steelyard.cli.bench_archive import write_text
    from steelyard.cli.bench_output import INVALID, print_report
    from steelyard.lab.judge import Verdict, comparison_json
    from steelyard.lab.judge.tables import comparison_report
    from steelyard.lab.report import as_html, as_markdown

    if len(what.sides) != 2:
        raise typer.BadParameter("name two", param_hint="A B")
    is_live = [side.startswith(("http://", "https://")) for side in what.sides]
    if is_live[0] != is_live[1]:
        raise typer.BadParameter("a server cannot be compared with a result", param_hint="A B")
    comparison = _measured(what, blocks, content, output) if all(is_live) else _stored(what)
    report = comparison_report(comparison)
    print_report(report, Console(highlight=False), is_brief=output.quiet)
    if output.json is not None:
        write_text(output.json, comparison_json(comparison).decode())
    if output.markdown is not None:
        write_text(output.markdown, as_markdown(report))
    if output.html is not None:
        write_text(output.html, as_html(report, ()))
    if not comparison.is_valid:
        raise typer.Exit(INVALID)
    if comparison.verdict is Verdict.WORSE:
        raise typer.Exit(WORSE)


def _stored(what: CompareFlags) -> "Comparison":
    from steelyard.cli.bench_archive import open_archive, read_side
    from steelyard.lab.judge import compare_stored

    with open_archive(what.archive) as store:
        left, right = (read_side(side, store, None) for side in what.sides)
    allowed = frozenset(what.unlike or ())
    return compare_stored(left, right, margin=what.margin / 100, allowed=allowed)


def _measured(
    what: CompareFlags, blocks: BlockFlags, content: ContentFlags, output: JudgeOutputFlags
) -> "Comparison":
    from steelyard.cli.bench_workload import read_content
    from steelyard.cli.service import new_runner
    from steelyard.lab.judge import BlockOptions
    from steelyard.lab.load import CacheState, ClosedLoop, OpenLoop, Workload, steady

    if content.cache == "warm":
        raise typer.BadParameter("blocks are too short to warm a cache", param_hint="--cache")
    if blocks.rate is not None and blocks.concurrency is not None:
        raise typer.BadParameter("--rate and --concurrency exclude each other")
    arrivals = (
        ClosedLoop(blocks.concurrency or 4, duration_s=blocks.block)
        if blocks.rate is None
        else OpenLoop(steady(blocks.rate, blocks.block))
    )
    workload = Workload(
        arrivals=arrivals,
        content=read_content(content),
        seed=content.seed,
        cache=CacheState(content.cache),
        context_tokens=content.context,
    )
    options = BlockOptions(workload=workload, groups=blocks.groups, margin=what.margin / 100)
    with new_runner() as runner:
        return runner.run(_compare_live(what.sides, blocks, options, is_quiet=output.quiet))


async def _compare_live(
    urls: list[str], blocks: BlockFlags, options: "BlockOptions", *, is_quiet: bool
) -> "Comparison":
    """The first Ctrl-C ends the measurement after the group that is under way."""
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn

    from steelyard.gateway.stop_signals import StopSignals
    from steelyard.lab.bench.session import Session
    from steelyard.lab.judge import compare_groups, measure_groups
    from steelyard.lab.mock.priority import run_promptly

    left, right = [await Session.open(options) for options in _session_options(urls, blocks)]
    run_promptly()
    console = Console(stderr=True)
    with (
        StopSignals() as signals,
        Progress(
            TextColumn("{task.description}"),
            BarColumn(bar_width=20),
            MofNCompleteColumn(),
            console=console,
            transient=True,
            disable=is_quiet or not console.is_terminal,
        ) as progress,
    ):
        task = progress.add_task("Groups of blocks", total=options.groups)
        groups = await measure_groups(
            left,
            right,
            options,
            on_group=lambda count: progress.update(task, completed=count),
            is_stopped=signals.first.is_set,
        )
    return compare_groups((urls[0], urls[1]), groups, options)


def _session_options(urls: list[str], blocks: BlockFlags) -> "list[SessionOptions]":
    from steelyard.cli.bench_session import read_api_key
    from steelyard.lab.bench.session import SessionOptions

    names = list(blocks.model or ())
    if len(names) > 2:
        raise typer.BadParameter("there are more models than servers", param_hint="--model")
    models = [names[0], names[-1]] if names else [None, None]
    headers = {}
    if blocks.api_key_env is not None:
        headers["Authorization"] = f"Bearer {read_api_key(blocks.api_key_env)}"
    return [
        SessionOptions(url=url, model=model, api=blocks.api, headers=headers)
        for url, model in zip(urls, models, strict=True)
    ]
