"""One run in words and tables."""

from steelyard.lab.report.cells import (
    bytes_cell,
    count_cell,
    estimate_cell,
    number_cell,
    optional_cell,
    percent_cell,
    share_cell,
    spoken,
)
from steelyard.lab.report.tables import Report, Table
from steelyard.lab.result import METRICS, RunResult

__all__ = ["audit_table", "run_report"]

_SHOWN = ("p50", "p90", "p95", "p99", "p99.9")


def run_report(run: RunResult) -> Report:
    return Report(
        title=run.name or f"Run {run.run_id}",
        verdict=_verdict(run),
        is_valid=run.audit.is_valid,
        reasons=tuple(run.audit.reasons),
        findings=_run_findings(run),
        tables=(
            _latency_table(run),
            _throughput_table(run),
            audit_table(run),
            _tokens_table(run),
            _set_up_table(run),
            *_failures_tables(run),
        ),
    )


def _verdict(run: RunResult) -> str:
    labels = f", {', '.join(run.audit.labels)}" if run.audit.labels else ""
    if not run.audit.is_valid:
        return f"INVALID{labels}"
    warned = sum(check.status == "warn" for check in run.audit.checks)
    return f"valid{labels}" + (f", {warned} warnings" if warned else "")


def _run_findings(run: RunResult) -> tuple[str, ...]:
    found = []
    ttft, itl = run.latencies.get("ttft_ms"), run.latencies.get("itl_ms")
    if ttft is not None:
        found.append(f"First token after {spoken(ttft)} from the scheduled time.")
    if itl is not None:
        found.append(f"Then a token every {spoken(itl)}.")
    through = run.throughput
    found.append(
        f"{number_cell(through.output_tokens_per_s)} output tokens/s, "
        f"{number_cell(through.complete_per_s)} of {number_cell(through.offered_per_s)} "
        "offered requests/s, "
        f"{run.concurrency_mean:.1f} in flight on average."
    )
    if not run.slo.is_empty:
        good = run.goodput
        found.append(
            f"{good.good} of {good.asked} requests met the target "
            f"({share_cell(good.share)}), {estimate_cell(good.per_s)} per second."
        )
    if run.is_saturated:
        found.append("The server was saturated: requests came faster than they were answered.")
    found += [f"Warning: {c.message}." for c in run.audit.checks if c.status == "warn"]
    return tuple(found)


def _latency_table(run: RunResult) -> Table:
    rows = []
    for key, meaning in METRICS.items():
        summary = run.latencies.get(key)
        if summary is not None:
            cells = (estimate_cell(summary.percentiles[name]) for name in _SHOWN)
            rows.append((key, str(summary.count), estimate_cell(summary.mean), *cells, meaning))
    return Table(
        "Latency",
        ("metric (ms)", "values", "mean", *_SHOWN, "meaning"),
        tuple(rows),
        "In brackets the interval that holds the true value with 95 % confidence; where an end is "
        "open, there are too few values to bound it.",
        is_main=True,
    )


def _throughput_table(run: RunResult) -> Table:
    through = run.throughput
    per_user = through.output_tokens_per_s_per_user
    rows = [
        ("offered requests/s", number_cell(through.offered_per_s)),
        ("sent requests/s", number_cell(through.sent_per_s)),
        ("completed requests/s", number_cell(through.complete_per_s)),
        ("output tokens/s", number_cell(through.output_tokens_per_s)),
        ("prompt tokens/s", number_cell(through.prompt_tokens_per_s)),
        ("output tokens/s of one user", "" if per_user is None else number_cell(per_user)),
        (
            "requests in flight, mean and peak",
            f"{run.concurrency_mean:.2f}, {run.concurrency_peak}",
        ),
        ("measured window", f"{run.window.begin_s:.2f} s to {run.window.end_s:.2f} s"),
        ("warm-up", run.window.warm_up),
    ]
    if not run.slo.is_empty:
        rows.append(("good requests/s", estimate_cell(run.goodput.per_s)))
        rows.append(("share of good requests", share_cell(run.goodput.share)))
    return Table("Load and throughput", ("what", "value"), tuple(rows))


def audit_table(run: RunResult) -> Table:
    rows = tuple((check.name, check.status, check.message) for check in run.audit.checks)
    return Table("Audit", ("check", "result", "what was found"), rows)


def _tokens_table(run: RunResult) -> Table:
    tokens = run.tokens
    rows = (
        ("output, as asked", str(tokens.output_asked)),
        ("output, best count", str(tokens.output)),
        ("output, by the server's usage", count_cell(tokens.by_usage)),
        ("output, by token ids", count_cell(tokens.by_ids)),
        ("output, by events", str(tokens.by_chunks)),
        (
            "output, counted again by our tokenizer",
            ""
            if tokens.retokenised is None
            else f"{tokens.retokenised} of {tokens.retokenised_of} in a sample",
        ),
        ("of it reasoning", count_cell(tokens.reasoning)),
        ("prompts, as asked", str(tokens.prompt_asked)),
        ("prompts, by the server's usage", count_cell(tokens.prompt)),
        ("of them cached", count_cell(tokens.cached)),
        ("answers with several tokens in an event", str(tokens.bundled_requests)),
        ("answers whose bundles are estimated", str(tokens.estimated_requests)),
    )
    return Table("Tokens of complete requests", ("what", "tokens"), rows)


def _set_up_table(run: RunResult) -> Table:
    target, client, hardware = run.target, run.client, run.hardware
    rows = [
        ("server", f"{target.url} {target.server} {target.version}".strip()),
        ("model", f"{target.model} ({target.api})"),
        ("prefix cache", run.workload.cache.value),
        ("seed", str(run.workload.seed)),
        ("client", f"{client.workers} processes, {client.cpu_share:.0%} of a processor"),
        ("client time per token event", f"{client.cpu_us_per_event:.0f} us"),
        ("client machine", client.machine),
        ("steelyard", f"{client.steelyard}, Python {client.python}"),
        ("processors of this machine", percent_cell(hardware.host_cpu_busy)),
        ("server memory, peak", bytes_cell(hardware.server_memory_peak_bytes)),
        ("server processors", optional_cell(hardware.server_cpu_cores)),
        ("devices", ", ".join(hardware.gpu_names)),
        ("device memory, peak", bytes_cell(hardware.gpu_memory_used_peak_bytes)),
        ("device power, mean W", optional_cell(hardware.gpu_power_mean_watts)),
    ]
    return Table("Set-up", ("what", "value"), tuple(row for row in rows if row[1]))


def _failures_tables(run: RunResult) -> tuple[Table, ...]:
    outcomes = tuple((label, str(count)) for label, count in run.counts.by_outcome.items())
    tables = [Table("How requests ended", ("outcome", "requests"), outcomes)]
    if run.messages:
        rows = tuple((text, str(count)) for text, count in list(run.messages.items())[:20])
        tables.append(Table("What failures said", ("message", "times"), rows))
    return tuple(tables)
