"""Makes the result of a run out of its records. Pure; `bench` runs, `report` writes."""

import platform
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt
import psutil

from steelyard import __version__
from steelyard.lab.audit import AuditLimits, Evidence, audit
from steelyard.lab.audit.load_checks import arrival_test
from steelyard.lab.client import ClientHealth
from steelyard.lab.load import Plan, Workload
from steelyard.lab.outcomes import Outcome, RequestFlag
from steelyard.lab.records import Records
from steelyard.lab.result import (
    ClientFacts,
    Counts,
    HardwareFacts,
    RequestTable,
    RunResult,
    TargetFacts,
    Throughput,
    TokenFacts,
    WindowFacts,
)
from steelyard.lab.stats import (
    Slo,
    Summary,
    Window,
    concurrency,
    gaps,
    goodput,
    request_latencies,
    summarise,
    timeline,
    tokens_per_s,
    worst_gaps_s,
)
from steelyard.lab.window import find_window

__all__ = ["RunFacts", "summarise_run"]

Floats = npt.NDArray[np.float64]

_BINS_PER_DECADE = 10


@dataclass(frozen=True, slots=True, kw_only=True)
class RunFacts:
    """What is known of a run besides its records."""

    run_id: str
    started_unix_s: float
    workload: Workload
    plan: Plan
    target: TargetFacts
    health: tuple[ClientHealth, ...]
    hardware: HardwareFacts = field(default_factory=HardwareFacts)
    slo: Slo = field(default_factory=Slo)
    name: str = ""
    warm_up_s: float | None = None
    """None: found in the data."""
    is_interrupted: bool = False
    sheds_on_purpose: bool = False
    limits: AuditLimits = field(default_factory=AuditLimits)
    keeps_requests: bool = True
    """Whether the result lists every request."""


def summarise_run(records: Records, facts: RunFacts) -> RunResult:
    """Count, estimate and audit."""
    measured = find_window(records, facts.plan, facts.warm_up_s)
    window = measured.window
    evidence = Evidence(
        workload=facts.workload,
        plan=facts.plan,
        records=records,
        health=facts.health,
        window=window,
        is_settled=measured.is_settled,
        is_interrupted=facts.is_interrupted,
        sheds_on_purpose=facts.sheds_on_purpose,
    )
    latencies = _latencies(records, window)
    running = concurrency(records, window)
    last_s = float(np.nanmax(records.requests["end_s"], initial=window.end_s))
    return RunResult(
        run_id=facts.run_id,
        name=facts.name,
        started_unix_s=facts.started_unix_s,
        target=facts.target,
        client=_client_facts(records, facts.health),
        workload=facts.workload,
        slo=facts.slo,
        window=WindowFacts(
            begin_s=window.begin_s,
            end_s=window.end_s,
            is_settled=measured.is_settled,
            warm_up=measured.warm_up,
        ),
        counts=_counts(records, window, facts.plan),
        throughput=_throughput(records, window, latencies),
        concurrency_mean=running.mean,
        concurrency_peak=running.peak,
        latencies=latencies,
        goodput=goodput(records, window, facts.slo),
        tokens=_token_facts(records),
        arrivals=arrival_test(evidence) if len(records) else None,
        audit=audit(evidence, facts.limits),
        hardware=facts.hardware,
        timeline=timeline(records, max(last_s, window.end_s)),
        gap_histogram=_histogram(gaps(records, window).per_token_s * 1e3),
        messages={f"{kind.label}: {text}": n for (kind, text), n in records.messages.items()},
        requests=_request_table(records) if facts.keeps_requests else None,
    )


def _latencies(records: Records, window: Window) -> dict[str, Summary]:
    answers, between = request_latencies(records, window), gaps(records, window)
    requests = records.requests[window.holds(records.requests["scheduled_s"])]
    is_shed = requests["outcome"] == Outcome.SHED
    is_new = (requests["flags"] & int(RequestFlag.NEW_CONNECTION)) != 0
    series = {
        "ttft_ms": answers.ttft_s,
        "ttft_sent_ms": answers.ttft_sent_s,
        "ttfa_ms": answers.ttfa_s,
        "itl_ms": between.per_token_s,
        "itl_event_ms": between.per_event_s,
        "tpot_ms": answers.tpot_s,
        "e2e_ms": answers.e2e_s,
        "e2e_sent_ms": answers.e2e_sent_s,
        "shed_ms": (requests["end_s"] - requests["sent_s"])[is_shed],
        "connect_ms": (requests["sent_s"] - requests["released_s"])[is_new],
    }
    found = {name: summarise(values_s * 1e3) for name, values_s in series.items()}
    return {name: summary for name, summary in found.items() if summary is not None}


def _counts(records: Records, window: Window, plan: Plan) -> Counts:
    outcomes = records.requests["outcome"]
    by_outcome = {o.label: int(np.sum(outcomes == o)) for o in Outcome if np.any(outcomes == o)}
    complete, shed, abandoned = (
        int(np.sum(outcomes == outcome))
        for outcome in (Outcome.COMPLETE, Outcome.SHED, Outcome.ABANDONED)
    )
    return Counts(
        requests=len(records),
        complete=complete,
        shed=shed,
        failed=len(records) - complete - shed - abandoned,
        abandoned=abandoned,
        measured=len(request_latencies(records, window).rows),
        by_outcome=by_outcome,
        cut_to_context=plan.cut_turns,
    )


def _throughput(records: Records, window: Window, latencies: dict[str, Summary]) -> Throughput:
    requests, duration_s = records.requests, max(window.duration_s, 1e-9)
    ended = records.is_complete & window.holds(requests["end_s"])
    prompted = requests["prompt_tokens"][window.holds(requests["first_token_s"])]
    tpot = latencies.get("tpot_ms")
    per_token_ms = None if tpot is None else tpot.percentiles["p50"].value
    return Throughput(
        offered_per_s=float(np.sum(window.holds(requests["scheduled_s"]))) / duration_s,
        sent_per_s=float(np.sum(window.holds(requests["sent_s"]))) / duration_s,
        complete_per_s=float(np.sum(ended)) / duration_s,
        output_tokens_per_s=tokens_per_s(records, window),
        prompt_tokens_per_s=float(prompted.clip(0).sum(dtype=np.int64)) / duration_s,
        output_tokens_per_s_per_user=1e3 / per_token_ms if per_token_ms else None,
    )


def _token_facts(records: Records) -> TokenFacts:
    requests = records.requests[records.is_complete]
    sample = requests[requests["output_retokenised"] >= 0]
    flags = requests["flags"]
    return TokenFacts(
        output=int(requests["output_tokens"].sum(dtype=np.int64)),
        by_usage=_known_sum(requests["output_usage"]),
        by_ids=_known_sum(requests["output_ids"]),
        by_chunks=int(requests["output_chunks"].sum(dtype=np.int64)),
        retokenised=_known_sum(sample["output_retokenised"]),
        retokenised_of=_known_sum(sample["output_tokens"]),
        reasoning=_known_sum(requests["reasoning_tokens"]),
        prompt_asked=int(requests["prompt_asked"].sum(dtype=np.int64)),
        prompt=_known_sum(requests["prompt_tokens"]),
        cached=_known_sum(requests["cached_tokens"]),
        output_asked=int(requests["output_asked"].sum(dtype=np.int64)),
        bundled_requests=int(np.sum((flags & int(RequestFlag.BUNDLED)) != 0)),
        estimated_requests=int(np.sum((flags & int(RequestFlag.ESTIMATED)) != 0)),
    )


def _known_sum(counts: npt.NDArray[np.int32]) -> int | None:
    """Of those that are known; None when none is."""
    known = counts[counts >= 0]
    return int(known.sum(dtype=np.int64)) if len(known) else None


def _client_facts(records: Records, health: tuple[ClientHealth, ...]) -> ClientFacts:
    lags_s = np.concatenate([np.asarray(one.loop_lags_s, dtype=float) for one in health])
    dispatch_s = records.requests["dispatched_s"] - records.requests["scheduled_s"]
    events = sum(one.token_events for one in health)
    return ClientFacts(
        workers=len(health),
        cpu_share=max(one.cpu_share for one in health),
        cpu_us_per_event=sum(one.cpu_s for one in health) / max(events, 1) * 1e6,
        loop_lag_p50_ms=_percentile_ms(lags_s, 50),
        loop_lag_p99_ms=_percentile_ms(lags_s, 99),
        dispatch_lag_p50_ms=_percentile_ms(dispatch_s, 50),
        dispatch_lag_p99_ms=_percentile_ms(dispatch_s, 99),
        connections_opened=sum(one.connections_opened for one in health),
        steelyard=__version__,
        python=platform.python_version(),
        machine=f"{platform.machine()}, {psutil.cpu_count()} processors, {platform.system()} "
        f"{platform.release()}",
    )


def _percentile_ms(values_s: Floats, percent: float) -> float:
    values_s = values_s[np.isfinite(values_s)]
    return float(np.percentile(values_s, percent)) * 1e3 if len(values_s) else 0.0


def _histogram(values_ms: Floats) -> dict[str, int]:
    values_ms = values_ms[values_ms > 0]
    if not len(values_ms):
        return {}
    bins = np.ceil(np.log10(values_ms) * _BINS_PER_DECADE).astype(int)
    found, counts = np.unique(bins, return_counts=True)
    bounds = 10.0 ** (found / _BINS_PER_DECADE)
    return {f"{bound:.4g}": int(n) for bound, n in zip(bounds, counts, strict=True)}


def _request_table(records: Records) -> RequestTable:
    requests, whole = records.requests, Window(-np.inf, np.inf)
    answers = request_latencies(records, whole)
    worst_s = worst_gaps_s(records, answers.rows, 0.99)
    columns = {
        "ttft": answers.ttft_s,
        "tpot": answers.tpot_s,
        "itl_p99": np.where(worst_s > 0, worst_s, np.nan),
        "e2e": answers.e2e_s,
    }
    spread = {name: _spread(answers.rows, values, len(records)) for name, values in columns.items()}
    lag_s = np.nan_to_num(requests["dispatched_s"] - requests["scheduled_s"])
    return RequestTable(
        session=requests["session"].tolist(),
        turn=requests["turn"].tolist(),
        scheduled_s=np.round(requests["scheduled_s"], 6).tolist(),
        outcome=[Outcome(int(number)).label for number in requests["outcome"]],
        prompt_tokens=[None if n < 0 else n for n in requests["prompt_tokens"].tolist()],
        output_tokens=requests["output_tokens"].tolist(),
        ttft_ms=spread["ttft"],
        tpot_ms=spread["tpot"],
        itl_p99_ms=spread["itl_p99"],
        e2e_ms=spread["e2e"],
        lag_ms=np.round(lag_s * 1e3, 3).tolist(),
    )


def _spread(rows: npt.NDArray[np.intp], values_s: Floats, count: int) -> list[float | None]:
    """Milliseconds in the places of their requests; None everywhere else."""
    places = np.full(count, np.nan)
    places[rows] = np.round(values_s * 1e3, 3)
    return [None if value != value else value for value in places.tolist()]
