"""`steelyard bench run`, `curve`, `sweep` and `stress`: from options to files.

`bench` registers them. They read options (`bench_workload`), measure (`bench_session`, the lab) and
tell (`bench_output`).
"""

from pathlib import Path
from typing import TYPE_CHECKING

import typer

from steelyard.cli.bench_flags import (
    ClientFlags,
    ContentFlags,
    CurveFlags,
    LoadFlags,
    OutputFlags,
    RunFlags,
    ServerFlags,
    StressFlags,
    SweepFlags,
)
from steelyard.cli.options import examples

if TYPE_CHECKING:  # `--help` should not pay for them
    from steelyard.lab.bench.session import Session
    from steelyard.lab.load import Content
    from steelyard.lab.result import RunResult
    from steelyard.lab.series import Curve, Repeats, Stress, Sweep

__all__ = [
    "CURVE_EXAMPLES",
    "RUN_EXAMPLES",
    "STRESS_EXAMPLES",
    "SWEEP_EXAMPLES",
    "curve",
    "run",
    "stress",
    "sweep",
]

RUN_EXAMPLES = examples(
    "steelyard bench run http://127.0.0.1:8000 --concurrency 4 --duration 60",
    "steelyard bench run http://127.0.0.1:8000 --rate 5 --slo ttft=500,itl=50 --save results",
    "steelyard bench run http://127.0.0.1:8000 --rate 5 --burstiness 2 --requests 600",
    "steelyard bench run http://127.0.0.1:8000 --profile 2@60,6@20,2@60 --prompt-tokens article",
    "steelyard bench run http://127.0.0.1:8000 --trace azure_conv.csv --trace-speed 0.2 -d 120",
    "steelyard bench run http://127.0.0.1:8000 -c 8 --turns 2-5 --think 3,1 --shared-tokens 200",
    "steelyard bench run https://example.com/v1 --api-key-env API_KEY --prompts prompts.jsonl",
)

CURVE_EXAMPLES = examples(
    "steelyard bench curve http://127.0.0.1:8000",
    "steelyard bench curve http://127.0.0.1:8000 -c 1,2,4,8,16,32 -d 60 --prompt-tokens article",
    "steelyard bench curve http://127.0.0.1:8000 --long-short --slo itl=60 --html curve.html",
)

SWEEP_EXAMPLES = examples(
    "steelyard bench sweep http://127.0.0.1:8000 --slo ttft=500,itl=50",
    "steelyard bench sweep http://127.0.0.1:8000 --rates 1,2,4,8 --duration 60 --save sweep",
    "steelyard bench sweep http://127.0.0.1:8000 --first-rate 2 --growth 1.3 --burstiness 2",
)

STRESS_EXAMPLES = examples(
    "steelyard bench stress http://127.0.0.1:8000 --peak 4",
    "steelyard bench stress http://127.0.0.1:8000 --peak-of result.json --factor 5",
    "steelyard bench stress http://127.0.0.1:8000 --peak-of azure_conv.csv --slo ttft=1000,itl=60",
)


def run(
    *,
    server: ServerFlags,
    load: LoadFlags,
    content: ContentFlags,
    judging: RunFlags,
    client: ClientFlags,
    output: OutputFlags,
) -> None:
    """Measure one load: by the clock, by users, or as it was recorded.

    Latency counts from when a request was due, so that queueing shows. The run audits itself.
    """
    from steelyard.cli.bench_output import finish
    from steelyard.cli.bench_session import measure, read_session_options
    from steelyard.cli.bench_workload import parse_slo, read_workload
    from steelyard.lab.bench.repeats import measure_repeats

    workload, slo = read_workload(load, content), parse_slo(judging.slo)

    async def work(session: "Session") -> "RunResult | Repeats":
        if judging.repeats > 1:
            return await measure_repeats(
                session,
                workload,
                times=judging.repeats,
                slo=slo,
                name=output.name or "Run",
                warm_up_s=judging.warm_up,
            )
        measured = await session.run(workload, slo=slo, name=output.name, warm_up_s=judging.warm_up)
        return measured.result

    finish(measure(read_session_options(server, client), output, work), output)


def curve(
    server: ServerFlags,
    curve: CurveFlags,
    content: ContentFlags,
    client: ClientFlags,
    output: OutputFlags,
) -> None:
    """Measure throughput, latency and memory over concurrency, and name the knee."""
    from steelyard.cli.bench_output import finish
    from steelyard.cli.bench_session import measure, read_session_options
    from steelyard.cli.bench_workload import parse_numbers, parse_slo, read_content
    from steelyard.lab.bench.curve import CurveOptions, measure_curve
    from steelyard.lab.load import CacheState, parse_lengths

    options = CurveOptions(
        concurrencies=parse_numbers(curve.concurrency, int, "--concurrency"),
        duration_s=curve.duration,
        content=read_content(content),
        short=parse_lengths(curve.short_tokens) if curve.long_short else None,
        long=parse_lengths(curve.long_tokens) if curve.long_short else None,
        cache=CacheState(content.cache),
        context_tokens=content.context,
        seed=content.seed,
        slo=parse_slo(curve.slo),
        latency_slack=curve.slack,
    )

    async def work(session: "Session") -> "Curve":
        return await measure_curve(session, options)

    finish(measure(read_session_options(server, client), output, work), output)


def sweep(
    server: ServerFlags,
    sweep: SweepFlags,
    content: ContentFlags,
    client: ClientFlags,
    output: OutputFlags,
) -> None:
    """Raise the rate until requests miss their target, and find the highest that does not."""
    from steelyard.cli.bench_output import finish
    from steelyard.cli.bench_session import measure, read_session_options
    from steelyard.cli.bench_workload import parse_numbers, parse_slo, read_content
    from steelyard.lab.bench.sweep import SweepOptions, measure_sweep
    from steelyard.lab.load import CacheState
    from steelyard.lab.stats import Slo

    rates = () if sweep.rates is None else parse_numbers(sweep.rates, float, "--rates")
    options = SweepOptions(
        content=read_content(content),
        slo=parse_slo(sweep.slo) or Slo(),
        rates=rates,
        first_rate=sweep.first_rate,
        growth=sweep.growth,
        halvings=sweep.halvings,
        attainment=sweep.attainment,
        duration_s=sweep.duration,
        cv=1.0 if sweep.burstiness is None else sweep.burstiness,
        cache=CacheState(content.cache),
        context_tokens=content.context,
        seed=content.seed,
    )

    async def work(session: "Session") -> "Sweep":
        return await measure_sweep(session, options)

    finish(measure(read_session_options(server, client), output, work), output)


def stress(
    server: ServerFlags,
    burst: StressFlags,
    content: ContentFlags,
    client: ClientFlags,
    output: OutputFlags,
) -> None:
    """Offer three times the daily peak: what is still good, what is shed, when does it recover?"""
    from steelyard.cli.bench_output import finish
    from steelyard.cli.bench_session import measure, read_session_options
    from steelyard.cli.bench_workload import parse_slo, read_content
    from steelyard.lab.bench.stress import StressOptions, measure_stress
    from steelyard.lab.load import CacheState
    from steelyard.lab.stats import Slo

    options = StressOptions(
        content=_content_of_peak(burst.peak_of) or read_content(content),
        slo=parse_slo(burst.slo) or Slo(),
        peak_rate=_peak_rate(burst),
        factor=burst.factor,
        before_s=burst.before,
        burst_s=burst.burst,
        after_s=burst.after,
        cv=1.0 if burst.burstiness is None else burst.burstiness,
        cache=CacheState(content.cache),
        context_tokens=content.context,
        seed=content.seed,
    )

    async def work(session: "Session") -> "Stress":
        return await measure_stress(session, options)

    finish(measure(read_session_options(server, client), output, work), output)


def _peak_rate(burst: StressFlags) -> float:
    from steelyard.cli.bench_workload import read_trace
    from steelyard.lab.bench.stress import peak_of_run, peak_of_trace
    from steelyard.lab.result import read_result

    if (burst.peak is None) == (burst.peak_of is None):
        raise typer.BadParameter("say how high the daily peak is", param_hint="--peak or --peak-of")
    if burst.peak is not None:
        return burst.peak
    assert burst.peak_of is not None
    if burst.peak_of.suffix == ".json":
        return peak_of_run(read_result(burst.peak_of))
    return peak_of_trace(read_trace(burst.peak_of))


def _content_of_peak(path: Path | None) -> "Content | None":
    """What was recorded there: the burst is to be more of the same. None: nothing was."""
    from steelyard.cli.bench_workload import read_trace
    from steelyard.lab.result import read_result

    if path is None:
        return None
    return read_result(path).workload.content if path.suffix == ".json" else read_trace(path)
