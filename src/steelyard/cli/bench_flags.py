"""Options of `steelyard bench`, in groups; `bench_workload` and `bench_session` give them meaning.

Imports nothing of the lab, so that `--help` answers at once.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, ClassVar, Literal

import typer

__all__ = [
    "ClientFlags",
    "ContentFlags",
    "CurveFlags",
    "LoadFlags",
    "OutputFlags",
    "RunFlags",
    "ServerFlags",
    "StressFlags",
    "SweepFlags",
]

_REPEATABLE = "may be repeated"
_LENGTHS = "128, 64-512, 0.8*32-511,0.2*2049-4096 (a mix), or article (that mix)."
_Cv = Annotated[
    float | None,
    typer.Option(
        "--burstiness",
        min=0.0,
        max=20.0,
        metavar="CV",
        help="Coefficient of variation of the gaps between requests: 0 constant, 1 Poisson, above "
        "1 bursty (gamma).",
    ),
]
_TARGET = "ttft=2000,itl=60"
_SLO_HELP = (
    "What a good request keeps, in ms: ttft, itl (for that percentile of its own gaps), tpot, "
    "e2e, percentile; such as ttft=500,itl=50,percentile=99."
)


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerFlags:
    """Who is measured, and how it is asked."""

    PANEL: ClassVar[str] = "The server"

    url: Annotated[
        str,
        typer.Argument(metavar="URL", help="Any OpenAI-compatible server; with or without /v1."),
    ]
    model: Annotated[
        str | None,
        typer.Option("--model", "-m", metavar="NAME", help="Default: the first it lists."),
    ] = None
    api: Annotated[
        Literal["chat", "completions"], typer.Option(help="Chat, or plain completions.")
    ] = "chat"
    stream: Annotated[
        bool, typer.Option(help="Answers as streams; without, only the whole takes a time.")
    ] = True
    ignore_eos: Annotated[
        bool, typer.Option(help="Have answers of exactly the asked length, where it can do so.")
    ] = True
    temperature: Annotated[float, typer.Option(min=0.0, max=2.0, metavar="NUMBER")] = 0.0
    body: Annotated[
        list[str] | None,
        typer.Option(
            "--body", metavar="KEY=JSON", help=f"Another parameter of requests; {_REPEATABLE}."
        ),
    ] = None
    header: Annotated[
        list[str] | None,
        typer.Option("--header", metavar="NAME:VALUE", help=f"HTTP header; {_REPEATABLE}."),
    ] = None
    api_key_env: Annotated[
        str | None,
        typer.Option(metavar="NAME", help="Environment variable that holds the API key."),
    ] = None
    server_pid: Annotated[
        int | None,
        typer.Option(
            metavar="PID",
            help="Process whose memory is watched. Default: found by the port, on this machine.",
        ),
    ] = None


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadFlags:
    """When requests are sent."""

    PANEL: ClassVar[str] = "When requests are sent"

    concurrency: Annotated[
        int | None,
        typer.Option(
            "--concurrency",
            "-c",
            min=1,
            metavar="USERS",
            help="Closed loop: so many users, each with one request at a time. Default: 1.",
        ),
    ] = None
    rate: Annotated[
        float | None,
        typer.Option(
            "--rate",
            "-r",
            min=0.001,
            metavar="PER_SECOND",
            help="Open loop: requests leave by the clock, whatever the server does.",
        ),
    ] = None
    profile: Annotated[
        str | None,
        typer.Option(
            metavar="STAGES",
            help="Open loop over RATE@SECONDS and FROM:TO@SECONDS: 5@60,15@20,5@60 is a burst, "
            "1:20@120 a ramp.",
        ),
    ] = None
    trace: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="Replay recorded traffic: Azure's CSV or Mooncake's .jsonl (whose equal blocks "
            "become equal text). With --rate, --profile or --concurrency only its lengths.",
        ),
    ] = None
    trace_speed: Annotated[
        float, typer.Option(min=0.001, metavar="FACTOR", help="2 replays twice as fast.")
    ] = 1.0
    trace_skip: Annotated[
        float, typer.Option(min=0.0, metavar="SECONDS", help="Left out of the trace's beginning.")
    ] = 0.0
    burstiness: _Cv = None
    arrivals: Annotated[
        Literal["constant", "poisson", "gamma"] | None,
        typer.Option(help="Gaps of an open loop; gamma takes --burstiness, 2 unless given."),
    ] = None
    max_in_flight: Annotated[
        int | None,
        typer.Option(
            min=1,
            metavar="REQUESTS",
            help="Cap of an open loop: later requests wait in the client, and their wait counts.",
        ),
    ] = None
    duration: Annotated[
        float | None,
        typer.Option("--duration", "-d", min=0.1, metavar="SECONDS", help="Default: 30."),
    ] = None
    requests: Annotated[
        int | None,
        typer.Option(
            "--requests", "-n", min=1, metavar="COUNT", help="In all; of several turns, sessions."
        ),
    ] = None
    ramp: Annotated[
        float,
        typer.Option(min=0.0, metavar="SECONDS", help="Users of a closed loop begin over this."),
    ] = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class ContentFlags:
    """What is sent."""

    PANEL: ClassVar[str] = "What is sent"

    prompt_tokens: Annotated[str, typer.Option(metavar="LENGTHS", help=_LENGTHS)] = "256"
    output_tokens: Annotated[str, typer.Option(metavar="LENGTHS", help="The same.")] = "64"
    turns: Annotated[
        str,
        typer.Option(
            metavar="LENGTHS", help="Requests of a session, each with the whole conversation."
        ),
    ] = "1"
    think: Annotated[
        str,
        typer.Option(
            metavar="SECONDS[,CV]", help="Time of a user between two turns, and its variation."
        ),
    ] = "0"
    shared_tokens: Annotated[
        int,
        typer.Option(min=0, metavar="TOKENS", help="Beginning that prompts have in common."),
    ] = 0
    shared_groups: Annotated[
        int, typer.Option(min=1, metavar="COUNT", help="So many different beginnings.")
    ] = 1
    prompts: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="Real prompts: JSON lines with `turns` or `prompt`, .gz too; or a text per line.",
        ),
    ] = None
    cache: Annotated[
        Literal["cold", "warm", "keep"],
        typer.Option(
            help="The server's prefix cache: cold (no prompt begins like an earlier one), warm "
            "(64 prompts, sent once before), keep (as earlier traffic left it)."
        ),
    ] = "cold"
    context: Annotated[
        int | None,
        typer.Option(
            min=2, metavar="TOKENS", help="Longer requests are cut. Default: what the server says."
        ),
    ] = None
    seed: Annotated[int, typer.Option(min=0, metavar="NUMBER")] = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class RunFlags:
    """How often, and what counts."""

    PANEL: ClassVar[str] = "How it is judged"

    slo: Annotated[str | None, typer.Option(metavar="LIMITS", help=_SLO_HELP)] = None
    warm_up: Annotated[
        float | None,
        typer.Option(
            min=0.0,
            metavar="SECONDS",
            help="Left out of the latencies. Default: found in the data (MSER-5).",
        ),
    ] = None
    repeats: Annotated[
        int,
        typer.Option(min=1, metavar="TIMES", help="Runs with seeds of their own; then intervals."),
    ] = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class CurveFlags:
    """Of `bench curve`."""

    PANEL: ClassVar[str] = "The curve"

    concurrency: Annotated[
        str,
        typer.Option("--concurrency", "-c", metavar="USERS,…", help="Ascending."),
    ] = "1,2,4,8,16"
    duration: Annotated[
        float, typer.Option("--duration", "-d", min=0.1, metavar="SECONDS", help="Of each point.")
    ] = 30.0
    long_short: Annotated[
        bool,
        typer.Option(
            help="Measure short and long prompts apart as well: how much smaller must batches of "
            "long ones be?"
        ),
    ] = False
    short_tokens: Annotated[
        str, typer.Option(metavar="LENGTHS", help="Short prompts, for --long-short.")
    ] = "32-511"
    long_tokens: Annotated[
        str, typer.Option(metavar="LENGTHS", help="Long prompts, for --long-short.")
    ] = "2049-4096"
    slack: Annotated[
        float,
        typer.Option(
            min=0.0,
            metavar="SHARE",
            help="For low latency, the highest concurrency whose p99 is within this of the best.",
        ),
    ] = 0.25
    slo: Annotated[str | None, typer.Option(metavar="LIMITS", help=_SLO_HELP)] = None


@dataclass(frozen=True, slots=True, kw_only=True)
class SweepFlags:
    """Of `bench sweep`."""

    PANEL: ClassVar[str] = "The sweep"

    rates: Annotated[
        str | None,
        typer.Option(
            metavar="PER_SECOND,…", help="Exactly these. Default: raised until it is too much."
        ),
    ] = None
    first_rate: Annotated[float, typer.Option(min=0.001, metavar="PER_SECOND")] = 0.5
    growth: Annotated[float, typer.Option(min=1.01, metavar="FACTOR")] = 1.6
    halvings: Annotated[
        int,
        typer.Option(
            min=0, metavar="COUNT", help="Closer looks between the last good and first bad rate."
        ),
    ] = 3
    attainment: Annotated[
        float,
        typer.Option(min=0.0, max=1.0, metavar="SHARE", help="Of requests that must be good."),
    ] = 0.95
    duration: Annotated[
        float, typer.Option("--duration", "-d", min=0.1, metavar="SECONDS", help="Of each rate.")
    ] = 30.0
    burstiness: _Cv = 1.0
    slo: Annotated[str, typer.Option(metavar="LIMITS", help=_SLO_HELP)] = _TARGET


@dataclass(frozen=True, slots=True, kw_only=True)
class StressFlags:
    """Of `bench stress`."""

    PANEL: ClassVar[str] = "The burst"

    peak: Annotated[
        float | None,
        typer.Option(min=0.001, metavar="PER_SECOND", help="The daily peak: requests per second."),
    ] = None
    peak_of: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="Take the peak, and what is sent, from a stored run or from a trace's busiest "
            "minute.",
        ),
    ] = None
    factor: Annotated[
        float, typer.Option(min=1.0, metavar="TIMES", help="The burst, in times the peak.")
    ] = 3.0
    before: Annotated[float, typer.Option(min=1.0, metavar="SECONDS", help="At the peak.")] = 30.0
    burst: Annotated[float, typer.Option(min=1.0, metavar="SECONDS", help="Above it.")] = 30.0
    after: Annotated[
        float, typer.Option(min=1.0, metavar="SECONDS", help="At the peak again: does it recover?")
    ] = 60.0
    burstiness: _Cv = 1.0
    slo: Annotated[str, typer.Option(metavar="LIMITS", help=_SLO_HELP)] = _TARGET


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientFlags:
    """The load generator itself."""

    PANEL: ClassVar[str] = "The client"

    workers: Annotated[
        int,
        typer.Option(min=1, metavar="PROCESSES", help="One for each 5,000 token events/s."),
    ] = 1
    tokenizer: Annotated[
        Path | None,
        typer.Option(metavar="PATH", help="Checkpoint whose tokenizer counts answers again."),
    ] = None
    send_ids: Annotated[
        bool,
        typer.Option("--send-ids", help="Send token ids of it; with --api completions only."),
    ] = False
    timeout: Annotated[
        float, typer.Option(min=0.1, metavar="SECONDS", help="For a whole answer.")
    ] = 600.0
    stall_timeout: Annotated[
        float, typer.Option(min=0.1, metavar="SECONDS", help="Without a single byte.")
    ] = 120.0
    realtime: Annotated[
        bool, typer.Option(help="Ask the kernel to run the client as soon as it wakes.")
    ] = True


@dataclass(frozen=True, slots=True, kw_only=True)
class OutputFlags:
    """What is kept."""

    PANEL: ClassVar[str] = "Results"

    name: Annotated[str, typer.Option(metavar="TEXT", help="What you call it.")] = ""
    save: Annotated[
        Path | None,
        typer.Option(metavar="FOLDER", help="Write all the files below into it."),
    ] = None
    json: Annotated[Path | None, typer.Option(metavar="FILE", help="Everything, as data.")] = None
    csv: Annotated[Path | None, typer.Option(metavar="FILE", help="The main table.")] = None
    requests_csv: Annotated[
        Path | None, typer.Option(metavar="FILE", help="One line per request (of a single run).")
    ] = None
    markdown: Annotated[Path | None, typer.Option(metavar="FILE", help="The report.")] = None
    html: Annotated[
        Path | None, typer.Option(metavar="FILE", help="The report with plots, in one file.")
    ] = None
    quiet: Annotated[
        bool, typer.Option("--quiet", "-q", help="No progress, and only the verdict at the end.")
    ] = False
