"""Options of `steelyard bench baseline`, `list`, `history`, `compare`, `gate` and `schedule`.

Imports nothing of the lab, so that `--help` answers at once.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, ClassVar, Literal

import typer

__all__ = [
    "ArchiveFlag",
    "BlockFlags",
    "CompareFlags",
    "FactFlag",
    "JudgeOutputFlags",
    "ToleranceFlag",
    "UnlikeFlag",
]

_REPEATABLE = "may be repeated"

ArchiveFlag = Annotated[
    Path | None,
    typer.Option(
        "--archive",
        metavar="FILE",
        help="The archive. Default: steelyard/archive.sqlite in the user's data folder.",
    ),
]

FactFlag = Annotated[
    list[str] | None,
    typer.Option(
        "--fact",
        metavar="NAME=VALUE",
        help="What the result does not say of its server: engine, engine_version, flags, model, "
        f"weights, hardware, driver, threads; {_REPEATABLE}.",
    ),
]

UnlikeFlag = Annotated[
    list[str] | None,
    typer.Option(
        "--unlike",
        metavar="PART",
        help="This part of the fingerprints may differ, such as engine_version or flags; all: any "
        f"may; {_REPEATABLE}. Without, unlike results are refused.",
    ),
]

ToleranceFlag = Annotated[
    list[str] | None,
    typer.Option(
        "--tolerance",
        metavar="PERCENT",
        help="How much worse is allowed: 10 for every number, ttft_ms.p99=15 for one; "
        f"{_REPEATABLE}. Default: 5.",
    ),
]


@dataclass(frozen=True, slots=True, kw_only=True)
class CompareFlags:
    """What is compared, and what matters."""

    PANEL: ClassVar[str] = "What is compared"

    sides: Annotated[
        list[str],
        typer.Argument(
            metavar="A B",
            help="Two result files, ids of the archive or names of sets; or the URLs of two "
            "servers, which are then measured in turns.",
        ),
    ]
    margin: Annotated[
        float,
        typer.Option(
            min=0.1, max=100.0, metavar="PERCENT", help="Differences up to this do not matter."
        ),
    ] = 5.0
    unlike: UnlikeFlag = None
    archive: ArchiveFlag = None


@dataclass(frozen=True, slots=True, kw_only=True)
class BlockFlags:
    """How two live servers are measured."""

    PANEL: ClassVar[str] = "Measuring two servers"

    groups: Annotated[
        int,
        typer.Option(min=3, max=500, metavar="COUNT", help="Groups of four blocks: A B B A."),
    ] = 8
    block: Annotated[float, typer.Option(min=0.2, metavar="SECONDS", help="Length of a block.")] = (
        5.0
    )
    rate: Annotated[
        float | None,
        typer.Option(
            "--rate", "-r", min=0.001, metavar="PER_SECOND", help="Open loop: by the clock."
        ),
    ] = None
    concurrency: Annotated[
        int | None,
        typer.Option("--concurrency", "-c", min=1, metavar="USERS", help="Closed loop. Default: 4"),
    ] = None
    model: Annotated[
        list[str] | None,
        typer.Option(
            "--model",
            "-m",
            metavar="NAME",
            help="Of both; a second one is B's. Default: the first.",
        ),
    ] = None
    api: Annotated[
        Literal["chat", "completions"], typer.Option(help="Chat, or plain completions.")
    ] = "chat"
    api_key_env: Annotated[
        str | None,
        typer.Option(metavar="NAME", help="Environment variable that holds the API key."),
    ] = None


@dataclass(frozen=True, slots=True, kw_only=True)
class JudgeOutputFlags:
    """What is kept."""

    PANEL: ClassVar[str] = "Results"

    json: Annotated[Path | None, typer.Option(metavar="FILE", help="Everything, as data.")] = None
    markdown: Annotated[Path | None, typer.Option(metavar="FILE", help="The report.")] = None
    html: Annotated[Path | None, typer.Option(metavar="FILE", help="The report, as a page.")] = None
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="Only the verdict.")] = False
