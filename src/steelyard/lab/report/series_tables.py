"""Several runs in words and tables: curve, sweep, stress, repeats."""

from collections.abc import Sequence

from steelyard.lab.report.cells import (
    bytes_cell,
    estimate_cell,
    number_cell,
    optional_cell,
    percentile_cell,
    share_cell,
)
from steelyard.lab.report.run_tables import audit_table
from steelyard.lab.report.tables import Report, Table
from steelyard.lab.result import RunResult
from steelyard.lab.series import Curve, CurvePoint, Repeats, Stress, Sweep
from steelyard.lab.stats import PERCENTILES

__all__ = ["curve_report", "repeats_report", "stress_report", "sweep_report"]


def curve_report(curve: Curve) -> Report:
    tables = [_points_table("Concurrency", curve.points)]
    if curve.short_points and curve.long_points:
        tables.append(_points_table("Short prompts alone", curve.short_points))
        tables.append(_points_table("Long prompts alone", curve.long_points))
    return _series_report(
        curve.runs,
        title="Throughput and latency over concurrency",
        findings=_curve_findings(curve),
        tables=tables,
    )


def _curve_findings(curve: Curve) -> tuple[str, ...]:
    found = []
    last = curve.points[-1].concurrency if curve.points else 0
    if curve.knee is None:
        found.append(f"Knee: none up to {last}, throughput still grows.")
    else:
        found.append(f"Knee: {curve.knee}; more concurrency brings little throughput.")
    if curve.latency_choice is not None:
        found.append(
            f"Where latency matters most: {curve.latency_choice}, the highest concurrency whose "
            f"p99 is within {curve.latency_slack:.0%} of the best one."
        )
    limit = curve.batch_limit
    if limit is not None:
        found.append(
            _batch_sentence(
                limit.limit_ms, limit.short_concurrency, limit.long_concurrency, limit.smaller_by
            )
        )
    return tuple(found)


def _batch_sentence(
    limit_ms: float, short: float | None, long: float | None, smaller_by: float | None
) -> str:
    start = f"At {limit_ms:.1f} ms between tokens (p99)"
    if smaller_by is not None and short is not None and long is not None:
        return (
            f"{start} long prompts allow a concurrency of {long:.1f} where short ones allow "
            f"{short:.1f}: {smaller_by:.0%} less."
        )
    reached = {"short": short, "long": long}
    free = " and ".join(name for name, value in reached.items() if value is None)
    return f"{start}: {free} prompts stay below it in the whole range."


def _points_table(title: str, points: Sequence[CurvePoint]) -> Table:
    rows = tuple(
        (
            str(point.concurrency),
            number_cell(point.output_tokens_per_s),
            number_cell(point.requests_per_s),
            optional_cell(point.e2e_p50_ms),
            optional_cell(point.e2e_p99_ms),
            optional_cell(point.ttft_p50_ms),
            optional_cell(point.ttft_p99_ms),
            optional_cell(point.itl_p50_ms),
            optional_cell(point.itl_p99_ms),
            bytes_cell(point.memory_bytes),
            "" if point.is_valid else "INVALID",
        )
        for point in points
    )
    columns = (
        "users",
        "tokens/s",
        "requests/s",
        "P50 ms",
        "P99 ms",
        "TTFT P50",
        "TTFT P99",
        "ITL P50",
        "ITL P99",
        "memory",
        "audit",
    )
    return Table(title, columns, rows, is_main=True)


def sweep_report(sweep: Sweep) -> Report:
    rows = tuple(
        (
            f"{point.rate:.3g}",
            estimate_cell(point.goodput.per_s),
            share_cell(point.goodput.share),
            number_cell(point.output_tokens_per_s),
            optional_cell(point.ttft_p50_ms),
            optional_cell(point.ttft_p99_ms),
            optional_cell(point.itl_p99_ms),
            f"{point.shed_share:.1%}",
            "saturated" if point.is_saturated else "",
            "" if point.is_valid else "INVALID",
        )
        for point in sweep.points
    )
    columns = (
        "offered/s",
        "good/s",
        "good",
        "tokens/s",
        "TTFT P50",
        "TTFT P99",
        "ITL P99",
        "shed",
        "state",
        "audit",
    )
    findings = [
        f"Up to {sweep.knee_rate:.3g} requests/s at least {sweep.attainment:.0%} are good."
        if sweep.knee_rate is not None
        else f"At no measured rate were {sweep.attainment:.0%} of the requests good."
    ]
    if sweep.saturation_rate is not None:
        findings.append(f"The server falls behind at {sweep.saturation_rate:.3g} requests/s.")
    return _series_report(
        sweep.runs,
        title="Goodput over the offered rate",
        findings=findings,
        tables=[Table("Rates", columns, rows, is_main=True)],
    )


def stress_report(stress: Stress) -> Report:
    rows = tuple(
        (
            phase.name,
            number_cell(phase.offered_per_s),
            estimate_cell(phase.goodput.per_s),
            share_cell(phase.goodput.share),
            f"{phase.shed_share:.1%}",
            f"{phase.failed_share:.1%}",
            percentile_cell(phase.ttft_ms, "p50"),
            percentile_cell(phase.ttft_ms, "p99"),
            percentile_cell(phase.shed_ms, "p99"),
        )
        for phase in stress.phases
    )
    columns = (
        "phase",
        "offered/s",
        "good/s",
        "good",
        "shed",
        "failed",
        "TTFT P50",
        "TTFT P99",
        "shed after P99 ms",
    )
    recovery = (
        f"{stress.recovery_s:.1f} s after the burst requests were good as often as before it."
        if stress.recovery_s is not None
        else "The server had not recovered when the run ended."
    )
    findings = (
        f"At {stress.factor:g} times the peak of {stress.peak_rate:.3g} requests/s, goodput was "
        f"{estimate_cell(stress.goodput_ratio)} times that at the peak.",
        recovery,
    )
    return _series_report(
        stress.runs,
        title=f"Stress at {stress.factor:g} times the peak",
        findings=findings,
        tables=[Table("Phases", columns, rows, is_main=True), *map(audit_table, stress.runs)],
    )


def repeats_report(repeats: Repeats) -> Report:
    names = [f"p{percent:g}" for percent in PERCENTILES]
    rows = tuple(
        (metric, *(estimate_cell(values[name]) for name in ("mean", *names)))
        for metric, values in repeats.across.items()
    )
    rate = estimate_cell(repeats.output_tokens_per_s)
    findings = (f"{rate} output tokens/s over {len(repeats.runs)} runs.",)
    table = Table(
        "Means over runs",
        ("metric (ms)", "mean", *names),
        rows,
        "In brackets Student's interval over runs.",
        is_main=True,
    )
    return _series_report(
        repeats.runs,
        title=f"{len(repeats.runs)} runs of the same workload",
        findings=findings,
        tables=[table],
    )


def _series_report(
    runs: Sequence[RunResult], *, title: str, findings: Sequence[str], tables: Sequence[Table]
) -> Report:
    """Valid when every run is."""
    named = [(run.name or run.run_id, run.audit) for run in runs]
    reasons = tuple(f"{name}: {reason}" for name, audit in named for reason in audit.reasons)
    invalid = sum(not audit.is_valid for _, audit in named)
    verdict = (
        f"{invalid} of {len(runs)} runs INVALID"
        if invalid
        else "valid"
        if len(runs) == 1
        else f"{len(runs)} runs, all valid"
    )
    if any("interrupted" in audit.labels for _, audit in named):
        verdict += ", interrupted"
    return Report(
        title=title,
        verdict=verdict,
        is_valid=invalid == 0 and len(runs) > 0,
        reasons=reasons,
        findings=tuple(findings),
        tables=tuple(tables),
    )
