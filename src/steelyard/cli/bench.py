"""`steelyard bench`: measure any OpenAI-compatible server. All its commands in one place.

`bench_run` measures, `bench_judge` remembers and judges, `bench_compare` compares; how is the lab's
business.
"""

from typing import Annotated, Literal

import typer

from steelyard.cli import bench_compare, bench_judge, bench_run
from steelyard.cli.flag_groups import with_flag_groups
from steelyard.cli.options import examples

__all__ = ["app"]

_EXAMPLES = examples(
    "steelyard bench run http://127.0.0.1:8000 --rate 5 --duration 60 --html report.html",
    "steelyard bench curve http://127.0.0.1:8000 --prompt-tokens article --save curve",
    "steelyard bench sweep http://127.0.0.1:8000 --slo ttft=500,itl=50",
    "steelyard bench stress http://127.0.0.1:8000 --peak 4",
    "steelyard bench compare http://127.0.0.1:8000 http://127.0.0.1:8001 --rate 5",
    more="Every run audits itself. Exit status: 0 when the numbers can be trusted, 3 when a run is "
    "INVALID (the reason is printed), 130 after Ctrl-C, which keeps what was measured; 1 and 2 for "
    "errors and wrong usage.",
)

app = typer.Typer(
    no_args_is_help=True,
    help="Measure a server: latency, throughput, curves, limits. Trust the result, or be told why "
    "not.",
    epilog=_EXAMPLES,
)
app.command(epilog=bench_run.RUN_EXAMPLES)(with_flag_groups(bench_run.run))
app.command(epilog=bench_run.CURVE_EXAMPLES)(with_flag_groups(bench_run.curve))
app.command(epilog=bench_run.SWEEP_EXAMPLES)(with_flag_groups(bench_run.sweep))
app.command(epilog=bench_run.STRESS_EXAMPLES)(with_flag_groups(bench_run.stress))
app.command(epilog=bench_compare.COMPARE_EXAMPLES)(with_flag_groups(bench_compare.compare))
app.command(epilog=bench_judge.BASELINE_EXAMPLES)(bench_judge.baseline)
app.command("list", epilog=bench_judge.LIST_EXAMPLES)(bench_judge.list_results)
app.command(epilog=bench_judge.HISTORY_EXAMPLES)(bench_judge.history)
app.command(epilog=bench_judge.GATE_EXAMPLES)(bench_judge.gate)
app.command(epilog=bench_judge.EXPLAIN_EXAMPLES)(bench_judge.explain)
app.command(epilog=bench_judge.SCHEDULE_EXAMPLES)(bench_judge.schedule)


@app.command()
def schema(
    what: Annotated[
        Literal["run", "series"], typer.Argument(help="A run, or a series of runs.")
    ] = "run",
) -> None:
    """Print the JSON Schema of what --json writes."""
    import json

    from steelyard.lab.result import json_schema
    from steelyard.lab.series import series_json_schema

    typer.echo(json.dumps(json_schema() if what == "run" else series_json_schema(), indent=2))
