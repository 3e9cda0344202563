"""What the options of `steelyard bench` ask for, as workloads of the lab.

Refuses what does not go together, by the options' names; the lab refuses the rest.
"""

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import typer

from steelyard.cli.bench_flags import ContentFlags, LoadFlags
from steelyard.lab.load import (
    Arrivals,
    AzureTrace,
    CacheState,
    ClosedLoop,
    Content,
    MooncakeTrace,
    OpenLoop,
    PromptFile,
    RateProfile,
    Synthetic,
    ThinkTime,
    TraceReplay,
    Workload,
    parse_lengths,
    parse_profile,
    steady,
)
from steelyard.lab.stats import Slo

__all__ = [
    "parse_numbers",
    "parse_slo",
    "read_content",
    "read_trace",
    "read_workload",
]

_DURATION_S = 30.0
_GAMMA_CV = 2.0
_CV = {"constant": 0.0, "poisson": 1.0, "gamma": _GAMMA_CV}


def read_workload(load: LoadFlags, content: ContentFlags) -> Workload:
    """One run. Raises `typer.BadParameter` or `InvalidRequest`."""
    asked = [
        name
        for name, value in (
            ("--concurrency", load.concurrency),
            ("--rate", load.rate),
            ("--profile", load.profile),
        )
        if value is not None
    ]
    if len(asked) > 1:
        raise typer.BadParameter(f"{asked[0]} and {asked[1]} exclude each other")
    if load.trace is not None and content.prompts is not None:
        raise typer.BadParameter("--trace and --prompts exclude each other")
    source = read_content(content) if load.trace is None else read_trace(load.trace)
    return Workload(
        arrivals=_arrivals(load),
        content=source,
        seed=content.seed,
        cache=CacheState(content.cache),
        context_tokens=content.context,
    )


def read_content(flags: ContentFlags) -> Content:
    """Prompts and answers."""
    think = _think(flags.think)
    output = parse_lengths(flags.output_tokens)
    if flags.prompts is not None:
        return PromptFile(path=str(flags.prompts), output=output, think=think)
    return Synthetic(
        input=parse_lengths(flags.prompt_tokens),
        output=output,
        turns=parse_lengths(flags.turns),
        think=think,
        shared_prefix_tokens=flags.shared_tokens,
        prefix_groups=flags.shared_groups,
    )


def read_trace(path: Path) -> AzureTrace | MooncakeTrace:
    """Which of the two it is, by the name of the file."""
    suffixes = {suffix.lower() for suffix in path.suffixes}
    if ".csv" in suffixes:
        return AzureTrace(str(path))
    if {".jsonl", ".json"} & suffixes:
        return MooncakeTrace(str(path))
    raise typer.BadParameter(
        f"{path.name} is neither a .csv nor a .jsonl file", param_hint="--trace"
    )


def parse_slo(text: str | None) -> Slo | None:
    """`ttft=2000,itl=60,percentile=99`. None: no target."""
    if text is None:
        return None
    fields = {"ttft": "ttft_ms", "itl": "itl_ms", "tpot": "tpot_ms", "e2e": "e2e_ms"}
    fields["percentile"] = "percentile"
    found: dict[str, float] = {}
    for part in text.split(","):
        name, _, value = part.strip().partition("=")
        if name not in fields:
            raise typer.BadParameter(
                f"{part.strip()!r} is no limit; there are {', '.join(fields)}", param_hint="--slo"
            )
        found[fields[name]] = _number(value, "--slo")
    if found.get("percentile", 99.0) > 100 or set(found) == {"percentile"}:
        raise typer.BadParameter(f"{text!r} limits nothing", param_hint="--slo")
    return msgspec.convert(found, Slo)


def parse_numbers(text: str, kind: Callable[[str], Any], option: str) -> tuple[Any, ...]:
    """`1,2,4`, ascending and above zero."""
    try:
        found = tuple(kind(part) for part in text.split(","))
    except ValueError:
        found = ()
    if not found or min(found) <= 0 or not all(math.isfinite(number) for number in found):
        raise typer.BadParameter(f"{text!r}: write numbers such as 1,2,4", param_hint=option)
    return tuple(sorted(set(found)))


def _arrivals(load: LoadFlags) -> Arrivals:
    profile = _profile(load)
    if profile is not None:
        _refuse(load, "an open loop", "ramp")
        cv = _cv(load)
        return OpenLoop(profile, 1.0 if cv is None else cv, load.max_in_flight)
    if _cv(load) is not None:
        raise typer.BadParameter("gaps are those of an open loop: add --rate or --profile")
    if load.trace is not None and load.concurrency is None:
        _refuse(load, "a replay", "ramp", "requests")
        return TraceReplay(load.trace_speed, load.trace_skip, load.duration, load.max_in_flight)
    _refuse(load, "a closed loop", "max_in_flight")
    duration_s = load.duration
    if duration_s is None and load.requests is None:
        duration_s = _DURATION_S
    return ClosedLoop(load.concurrency or 1, duration_s, load.requests, load.ramp)


def _profile(load: LoadFlags) -> RateProfile | None:
    """Of an open loop; None for anything else."""
    if load.profile is not None:
        _refuse(load, "a profile", "duration", "requests")
        return parse_profile(load.profile)
    if load.rate is None:
        return None
    if load.requests is None:
        return steady(load.rate, load.duration or _DURATION_S)
    _refuse(load, "--requests with --rate", "duration")
    return steady(load.rate, load.requests / load.rate)


def _cv(load: LoadFlags) -> float | None:
    """Variation of the gaps; None when nothing was said about it."""
    if load.arrivals is None:
        return load.burstiness
    if load.arrivals == "gamma" and load.burstiness is not None:
        return load.burstiness
    if load.burstiness is not None:
        raise typer.BadParameter(f"--burstiness is for gamma arrivals, not {load.arrivals} ones")
    return _CV[load.arrivals]


def _refuse(load: LoadFlags, what: str, *names: str) -> None:
    """Options that have no meaning here were not given."""
    for name in names:
        if getattr(load, name):
            option = f"--{name.replace('_', '-')}"
            raise typer.BadParameter(f"{what} has no use for {option}", param_hint=option)


def _think(text: str) -> ThinkTime:
    mean, _, cv = text.partition(",")
    return ThinkTime(_number(mean, "--think"), _number(cv, "--think") if cv else 0.0)


def _number(text: str, option: str) -> float:
    try:
        number = float(text)
    except ValueError:
        number = math.nan
    if not (math.isfinite(number) and number >= 0):
        raise typer.BadParameter(f"{text!r} is no number of at least 0", param_hint=option)
    return number
