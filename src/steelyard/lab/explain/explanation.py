"""Which bound holds? From a run and the server's metrics to a name, with the evidence.

Latency is taken apart into where a request spends it:

    client → gateway, network → queue → prefill → decode

and each part is held against what it would be without load: nothing for queues and for the way, the
fastest requests' own values (or a run with a single user) for computing. The part with the largest
excess names the bound. Where nothing exceeds, the largest part is named, and that it is no limit.
"""

import math
from collections.abc import Iterator

import msgspec
import numpy as np

from steelyard.lab.explain.dialects import EngineFacts, read_engine_facts
from steelyard.lab.result import RunResult

__all__ = ["BOUNDS", "Explanation", "Part", "explain", "explanation_json"]

BOUNDS: dict[str, str] = {
    "client": "the load generator itself",
    "gateway": "the gateway, or the network, between client and engine",
    "queue": "places in the engine: requests wait though memory is free",
    "kv": "KV memory: requests wait for it, or are set back for it",
    "prefill": "computing prompts",
    "decode": "computing tokens: memory bandwidth, as long as a batch is small",
    "none": "nothing: the server has reserves at this load",
    "unknown": "cannot be told from what was measured",
}
"""Every name that an explanation can give."""

_FULL = 0.92
"""Share of KV memory above which the next request may not fit."""
_PREEMPTED = 0.02
"""Preemptions per request that say that memory is short."""
_MATTERS = 0.15
"""Share of a request's time that an excess must have to be called a bound."""
_FASTEST = 2.0
"""Percentile of requests that are taken to have met an empty server."""
_BUSY = 0.7
"""Share of a processor above which a client has little reserve for bursts of tokens."""
_CALM = 2.0
"""Requests in flight that hardly slow each other."""
_FEWEST_CALM_TOKENS = 20
_CLIENT_CHECKS = ("loop_lag", "client_cpu", "dispatch_lag", "connections", "late_start")


class Part(msgspec.Struct, frozen=True, kw_only=True):
    """Where a request spends time, on average."""

    name: str
    mean_ms: float | None
    """None: not known."""
    excess_ms: float | None
    """Above what it is without load."""
    share: float | None
    """Of the whole."""
    how: str
    """What the numbers are made from."""


class Explanation(msgspec.Struct, frozen=True, kw_only=True):
    """See the module."""

    schema: str = "steelyard.bench.explanation/1"
    bound: str
    words: str
    is_limit: bool
    """Whether load makes it slower; else it is merely where most time goes."""
    evidence: list[str]
    unknown: list[str]
    """What could not be told, and what would tell it."""
    parts: list[Part]


def explain(run: RunResult, lone: RunResult | None = None) -> Explanation:
    """`lone`: the same requests, one at a time. None: the fastest requests of the run stand in."""
    facts = read_engine_facts(run.server_metrics)
    parts = _Parts(run, facts, lone)
    bound, is_limit = _name(run, facts, parts)
    words = BOUNDS[bound]
    if bound not in ("none", "unknown") and not is_limit:
        words = f"no limit is reached; most of the time goes into {words}"
    return Explanation(
        bound=bound,
        words=words,
        is_limit=is_limit,
        evidence=list(_evidence(run, facts, parts)),
        unknown=list(_unknown(run, facts)),
        parts=parts.all,
    )


def explanation_json(explanation: Explanation) -> bytes:
    """Everything, indented."""
    return msgspec.json.format(msgspec.json.encode(explanation), indent=1) + b"\n"


class _Parts:
    """A request's time in its parts, in milliseconds."""

    def __init__(self, run: RunResult, facts: EngineFacts, lone: RunResult | None) -> None:
        self.whole_ms = _mean(run, "e2e_ms") or 0.0
        sent_ms = _mean(run, "e2e_sent_ms") or self.whole_ms
        ttft_ms = _mean(run, "ttft_sent_ms")
        tokens = run.tokens.output / max(run.counts.complete, 1)
        per_s = run.throughput.complete_per_s
        lone_ttft_ms, lone_tpot_ms = _without_load(run, lone)
        client_ms = max(self.whole_ms - sent_ms, 0.0)

        queue_ms, queue_how = _queue_ms(facts, per_s)
        prefill_ms, prefill_how = _ms(facts.prefill_s), "the engine's histogram"
        decode_ms, decode_how = _ms(facts.decode_s), "the engine's histogram"
        way_ms, way_how = None, ""
        if prefill_ms is not None and decode_ms is not None:
            way_ms = max(sent_ms - (queue_ms or 0.0) - prefill_ms - decode_ms, 0.0)
            way_how = "what is left of the client's latency"
        elif facts.running is not None and queue_ms is not None and per_s > 0:
            way_ms = max(sent_ms - queue_ms - facts.running / per_s * 1e3, 0.0)
            way_how = "requests in flight that are not in the engine (Little's law)"
        if prefill_ms is None and ttft_ms is not None:
            prefill_ms = max(ttft_ms - (queue_ms or 0.0), 0.0)
            prefill_how = "the client's time to first token, without the queue"
            decode_ms = max(sent_ms - ttft_ms, 0.0)
            decode_how = "the client's time after the first token"
            if way_ms is not None:  # counted once: it lies within both
                scale = max(1 - way_ms / max(prefill_ms + decode_ms, 1e-9), 0.0)
                prefill_ms, decode_ms = prefill_ms * scale, decode_ms * scale
        self.all = [
            self._part("client", client_ms, client_ms, "from being due to being sent"),
            self._part("gateway", way_ms, way_ms, way_how),
            self._part("queue", queue_ms, queue_ms, queue_how),
            self._part("prefill", prefill_ms, _above(prefill_ms, lone_ttft_ms), prefill_how),
            self._part(
                "decode",
                decode_ms,
                _above(decode_ms, None if lone_tpot_ms is None else lone_tpot_ms * (tokens - 1)),
                decode_how,
            ),
        ]

    def _part(self, name: str, mean_ms: float | None, excess_ms: float | None, how: str) -> Part:
        share = None if mean_ms is None or self.whole_ms <= 0 else mean_ms / self.whole_ms
        return Part(
            name=name,
            mean_ms=mean_ms,
            excess_ms=excess_ms,
            share=share,
            how=how if mean_ms is not None else "",
        )

    def __getitem__(self, name: str) -> Part:
        return next(part for part in self.all if part.name == name)


def _name(run: RunResult, facts: EngineFacts, parts: _Parts) -> tuple[str, bool]:
    """The bound, and whether it is a limit."""
    if not run.counts.complete or parts.whole_ms <= 0:
        return "unknown", False
    if _client_failures(run):
        return "client", True
    floor_ms = _MATTERS * parts.whole_ms
    excess = {p.name: p.excess_ms for p in parts.all if p.excess_ms is not None}
    waits = excess.get("queue", 0.0) >= floor_ms
    preempted = (facts.preemptions or 0.0) / max(run.counts.requests, 1)
    is_full = facts.kv_peak is not None and facts.kv_peak >= _FULL
    if preempted >= _PREEMPTED or (is_full and waits):
        return "kv", True
    worst = max(excess, key=lambda name: excess[name], default="decode")
    if excess.get(worst, 0.0) >= floor_ms:
        # What a client reads late looks as if it came late.
        is_client = worst == "gateway" and run.client.cpu_share >= _BUSY
        return "client" if is_client else worst, True
    known = [part for part in parts.all if part.share is not None]
    if not known:
        return "unknown", False
    largest = max(known, key=lambda part: part.share or 0.0)
    return largest.name, False


def _client_failures(run: RunResult) -> list[str]:
    return [
        check.message
        for check in run.audit.checks
        if check.name in _CLIENT_CHECKS and check.status == "fail"
    ]


def _queue_ms(facts: EngineFacts, per_s: float) -> tuple[float | None, str]:
    if facts.queue_s is not None:
        return facts.queue_s * 1e3, "the engine's histogram"
    if facts.waiting is not None and per_s > 0:
        return facts.waiting / per_s * 1e3, "requests waiting over their rate (Little's law)"
    return None, ""


def _without_load(run: RunResult, lone: RunResult | None) -> tuple[float | None, float | None]:
    """Time to first token and time per token where nothing else is running."""
    if lone is not None:
        ttft, tpot = lone.percentile("ttft_sent_ms", 50), lone.percentile("tpot_ms", 50)
        return (None if ttft is None else ttft.value), (None if tpot is None else tpot.value)
    if run.requests is None:
        ttft_summary, tpot_summary = run.latencies.get("ttft_sent_ms"), run.latencies.get("tpot_ms")
        ttft_ms = None if ttft_summary is None else ttft_summary.minimum
        tpot_ms = None if tpot_summary is None else tpot_summary.minimum
    else:
        ttft_ms, tpot_ms = _fastest(run.requests.ttft_ms), _fastest(run.requests.tpot_ms)
    calm_ms = _calm_tpot_ms(run)
    return ttft_ms, min((x for x in (tpot_ms, calm_ms) if x is not None), default=None)


def _calm_tpot_ms(run: RunResult) -> float | None:
    """Time per token while next to nothing ran, as when a run drains: users of a closed loop are
    never alone before. None: there was no such moment, or too few tokens came in it."""
    line = run.timeline
    calm = [
        (running, tokens)
        for running, tokens in zip(line.in_flight, line.output_tokens, strict=True)
        if 0.5 <= running <= _CALM and tokens
    ]
    tokens = sum(count for _, count in calm)
    if tokens < _FEWEST_CALM_TOKENS:
        return None
    return sum(running for running, _ in calm) * line.bin_s * 1e3 / tokens


def _fastest(values: list[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return float(np.percentile(known, _FASTEST)) if known else None


def _evidence(run: RunResult, facts: EngineFacts, parts: _Parts) -> Iterator[str]:
    for message in _client_failures(run):
        yield f"client: {message}"
    yield (
        f"client: busiest process used {run.client.cpu_share:.0%} of a processor, its event loop "
        f"was late by {run.client.loop_lag_p99_ms:.1f} ms (p99)"
    )
    if facts.waiting is not None:
        yield f"queue: {facts.waiting:.1f} requests waited on average, {facts.running or 0:.1f} ran"
    if facts.kv_peak is not None:
        preempted = "" if facts.preemptions is None else f", {facts.preemptions:.0f} preemptions"
        yield f"KV memory: {facts.kv_peak:.0%} in use at the peak{preempted}"
    if facts.gap_s is not None and facts.door_gap_s is not None:
        yield (
            f"gateway: {facts.door_gap_s * 1e3:.1f} ms between tokens at the door, "
            f"{facts.gap_s * 1e3:.1f} ms in the engine"
        )
    if facts.prefill_busy_s and facts.decode_busy_s:
        yield (
            f"computing: {facts.prefill_busy_s:.1f} s for prompts, {facts.decode_busy_s:.1f} s for "
            "tokens"
        )
    for name in ("prefill", "decode"):
        part = parts[name]
        if part.mean_ms is not None and part.excess_ms is not None:
            alone_ms = part.mean_ms - part.excess_ms
            yield f"{name}: {part.mean_ms:.0f} ms per request, {alone_ms:.0f} ms without load"
    if (slope := _batch_cost(run)) is not None:
        fixed, per_request = slope
        yield (
            f"decode: a token takes {fixed:.1f} ms and {per_request:.2f} ms more for every other "
            "request in flight"
        )


def _batch_cost(run: RunResult) -> tuple[float, float] | None:
    """Time per token as a line over the requests in flight, where their number varied enough.

    A flat line is what memory bandwidth looks like: the weights are read once for all. None:
    nothing can be said.
    """
    table = run.requests
    if table is None or not table.scheduled_s:
        return None
    known = [
        (begun, tpot, begun + e2e / 1e3)
        for begun, tpot, e2e in zip(table.scheduled_s, table.tpot_ms, table.e2e_ms, strict=True)
        if tpot is not None and e2e is not None
    ]
    if len(known) < 20:
        return None
    begun, tpot, ended = (np.array(column) for column in zip(*known, strict=True))
    middle = (begun + ended) / 2
    others = np.searchsorted(np.sort(begun), middle) - np.searchsorted(np.sort(ended), middle) - 1
    if np.ptp(others) < 2:
        return None
    slope, fixed = np.polyfit(others, tpot, 1)
    if not math.isfinite(slope) or slope < 0 or fixed < 0:
        return None
    return float(fixed), float(slope)


def _unknown(run: RunResult, facts: EngineFacts) -> Iterator[str]:
    if run.server_metrics is None:
        yield (
            "The server shows no metrics that are understood: queue, prefill and gateway cannot be "
            "told apart. (SGLang and llama.cpp's server want to be started with theirs.)"
        )
        return
    if facts.queue_s is None and facts.waiting is None:
        yield "Whether requests waited in the engine: it publishes no queue."
    if facts.prefill_s is None:
        yield (
            "How long prompts were computed: the engine publishes no such time, so it stands for "
            "everything between queue and first token."
        )
    if facts.kv_peak is None:
        yield "Whether KV memory was short: its use is not published."
    elif facts.preemptions is None:
        yield "Whether requests were set back for memory: preemptions are not published."
    if facts.decode_s is None and facts.running is None:
        yield "What the gateway costs: nothing is published of the engine behind it."
    yield (
        "Whether decoding is held up by memory bandwidth or by arithmetic, for certain: that needs "
        "the model's bytes per token and the machine's bandwidth."
    )


def _mean(run: RunResult, metric: str) -> float | None:
    summary = run.latencies.get(metric)
    return None if summary is None else summary.mean.value


def _ms(seconds: float | None) -> float | None:
    return None if seconds is None else seconds * 1e3


def _above(value: float | None, without_load: float | None) -> float | None:
    if value is None or without_load is None:
        return None
    return max(value - without_load, 0.0)
