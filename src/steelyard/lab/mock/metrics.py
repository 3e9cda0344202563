"""The mock's /metrics: what it pretends to measure, under the names of the servers it stands for.

    vllm:*         the engine alone, as vLLM reports it (before a planted gateway)
    steelyard_*    engine and door, as Steelyard reports them (after a planted gateway)
    mock_*         the truth about the mock itself: its timing error, what clients did not read

A few histograms and counters, written as Prometheus text; enough to test tools that read such
metrics, no replacement of `telemetry`.
"""

import bisect
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping

from steelyard.lab.mock.config import MockConfig
from steelyard.lab.mock.serving import Job, Serving
from steelyard.lab.mock.timing_error import TimingSummary
from steelyard.lab.mock.truth import RequestTruth

__all__ = ["MockMetrics"]

_SECONDS = (
    *(0.001, 0.0025, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.15, 0.2, 0.3, 0.5, 0.75),
    *(1.0, 1.5, 2.5, 5.0, 7.5, 10.0, 20.0, 40.0, 80.0, 160.0),
)
_TOKENS = tuple(float(2**power) for power in range(21))
_BLOCK_TOKENS = 16
_UNLIMITED_KV_TOKENS = 1_000_000
"""What /metrics claims to have when memory has no limit."""


class _Histogram:
    __slots__ = ("bounds", "counts", "total")

    def __init__(self, bounds: tuple[float, ...]) -> None:
        self.bounds = bounds
        self.counts = [0] * (len(bounds) + 1)
        self.total = 0.0

    def add(self, value: float, count: int = 1) -> None:
        self.counts[bisect.bisect_left(self.bounds, value)] += count
        self.total += value * count


class MockMetrics:
    """Counts what the server tells it, and writes it down."""

    def __init__(self, config: MockConfig, serving: Serving) -> None:
        self._config = config
        self._serving = serving
        names = ("engine_ttft", "queue", "prefill", "decode", "door_ttft", "gap", "engine_gap")
        self._seconds = {name: _Histogram(_SECONDS) for name in (*names, "latency")}
        self._prompt = _Histogram(_TOKENS)
        self._output = _Histogram(_TOKENS)
        self._outcomes: Counter[tuple[str, str]] = Counter()
        self.requests_received = 0
        self.requests_ended = 0

    def ended(self, truth: RequestTruth, job: Job | None) -> None:
        """A request is over; `job` is None when it was refused before it had one."""
        self.requests_ended += 1
        self._outcomes[_outcome(truth)] += 1
        if job is None or truth.outcome != "finished" or not truth.sent_ns:
            return
        self._count_engine(job, truth)
        seconds = self._seconds
        seconds["door_ttft"].add(truth.sent_ns[0] / 1e9)
        seconds["latency"].add(((truth.ended_ns or 0) - truth.arrived_ns) / 1e9)
        if len(truth.sent_ns) > 1:
            gaps = zip(truth.sent_ns, truth.sent_ns[1:], strict=False)
            for before, after in gaps:
                seconds["gap"].add((after - before) / 1e9)
        self._prompt.add(truth.prompt_tokens)
        self._output.add(truth.output_tokens)

    def render(self, timing: TimingSummary, unsent_bytes: int) -> bytes:
        """The page, in Prometheus' text format."""
        lines: list[str] = []
        if self._config.metrics != "vllm":
            lines.extend(self._steelyard())
        if self._config.metrics != "steelyard":
            lines.extend(self._vllm())
        lines.extend(self._own(timing, unsent_bytes))
        return ("\n".join(lines) + "\n").encode()

    def _count_engine(self, job: Job, truth: RequestTruth) -> None:
        assert job.slot_ns is not None and job.first_token_ns is not None
        seconds = self._seconds
        seconds["queue"].add((job.slot_ns - job.arrived_ns) / 1e9)
        seconds["prefill"].add((job.first_token_ns - job.slot_ns) / 1e9)
        seconds["engine_ttft"].add((job.first_token_ns - job.arrived_ns) / 1e9)
        if job.last_token_ns is not None and job.produced > 1:
            decode_s = (job.last_token_ns - job.first_token_ns) / 1e9
            seconds["decode"].add(decode_s)
            seconds["engine_gap"].add(decode_s / (job.produced - 1), job.produced - 1)

    def _steelyard(self) -> Iterator[str]:
        serving, model = self._serving, f'model="{self._config.model}"'
        replica = 'replica="mock"'
        waiting, running = serving.waiting, serving.running
        total, used = self._kv()
        yield from _counter("steelyard_requests_received_total", {model: self.requests_received})
        in_flight = self.requests_received - self.requests_ended
        yield from _gauge("steelyard_requests_in_flight", {model: in_flight})
        yield from _gauge("steelyard_requests_waiting", {model: 0})
        ended = {
            f'{model},outcome="{outcome}",reason="{reason}"': count
            for (outcome, reason), count in self._outcomes.items()
        }
        yield from _counter("steelyard_requests_ended_total", ended)
        for name, key in _STEELYARD_SECONDS.items():
            yield from _histogram(f"steelyard_{name}", model, self._seconds[key])
        yield from _histogram("steelyard_request_prompt_tokens", model, self._prompt)
        yield from _histogram("steelyard_request_output_tokens", model, self._output)
        yield from _gauge("steelyard_engine_running", {replica: running})
        yield from _gauge("steelyard_engine_waiting", {replica: waiting})
        yield from _gauge("steelyard_engine_kv_blocks", {replica: total // _BLOCK_TOKENS})
        yield from _gauge("steelyard_engine_kv_blocks_used", {replica: used // _BLOCK_TOKENS})
        yield from _gauge("steelyard_engine_kv_used_ratio", {replica: used / total})
        yield from _gauge("steelyard_engine_step_seconds", {replica: self._step_s()})
        preempted = {replica: serving.preemptions_total}
        yield from _counter("steelyard_engine_preemptions_total", preempted)
        yield from _counter(
            "steelyard_engine_produced_tokens_total", {replica: serving.tokens_total}
        )

    def _vllm(self) -> Iterator[str]:
        serving, label = self._serving, f'model_name="{self._config.model}"'
        total, used = self._kv()
        yield from _gauge("vllm:num_requests_running", {label: serving.running})
        yield from _gauge("vllm:num_requests_waiting", {label: serving.waiting})
        yield from _gauge("vllm:kv_cache_usage_perc", {label: used / total})
        yield from _counter("vllm:num_preemptions_total", {label: serving.preemptions_total})
        yield from _counter("vllm:prompt_tokens_total", {label: self._prompt.total})
        yield from _counter("vllm:generation_tokens_total", {label: serving.tokens_total})
        finished = {
            f'{label},finished_reason="{reason}"': count
            for (outcome, reason), count in self._outcomes.items()
            if outcome == "finished"
        }
        yield from _counter("vllm:request_success_total", finished)
        for name, key in _VLLM_SECONDS.items():
            yield from _histogram(f"vllm:{name}", label, self._seconds[key])

    def _own(self, timing: TimingSummary, unsent_bytes: int) -> Iterator[str]:
        quantiles = {
            'quantile="0.5"': timing.p50_ms / 1e3,
            'quantile="0.99"': timing.p99_ms / 1e3,
            'quantile="1"': timing.max_ms / 1e3,
        }
        yield from _gauge("mock_timing_error_seconds", quantiles)
        yield from _gauge("mock_unsent_bytes", {"": unsent_bytes})

    def _kv(self) -> tuple[int, int]:
        return self._config.kv_tokens or _UNLIMITED_KV_TOKENS, self._serving.kv_used_tokens

    def _step_s(self) -> float:
        slowed_us = self._config.itl_us_per_running * max(self._serving.running - 1, 0)
        return self._config.itl_ms.mean / 1e3 + slowed_us / 1e6


_STEELYARD_SECONDS = {
    "time_to_first_token_seconds": "door_ttft",
    "inter_token_latency_seconds": "gap",
    "request_duration_seconds": "latency",
}
_VLLM_SECONDS = {
    "time_to_first_token_seconds": "engine_ttft",
    "inter_token_latency_seconds": "engine_gap",
    "e2e_request_latency_seconds": "latency",
    "request_queue_time_seconds": "queue",
    "request_prefill_time_seconds": "prefill",
    "request_decode_time_seconds": "decode",
}


def _outcome(truth: RequestTruth) -> tuple[str, str]:
    if truth.outcome == "finished":
        return "finished", truth.finish_reason or "stop"
    if truth.outcome == "client_gone":
        return "cancelled", "disconnect"
    return ("rejected" if truth.status == 429 else "failed"), truth.outcome


def _gauge(name: str, values: Mapping[str, float]) -> Iterator[str]:
    yield f"# TYPE {name} gauge"
    yield from _samples(name, values.items())


def _counter(name: str, values: Mapping[str, float]) -> Iterator[str]:
    yield f"# TYPE {name} counter"
    yield from _samples(name, values.items())


def _histogram(name: str, label: str, histogram: _Histogram) -> Iterator[str]:
    yield f"# TYPE {name} histogram"
    below = 0
    for bound, count in zip((*histogram.bounds, None), histogram.counts, strict=True):
        below += count
        edge = "+Inf" if bound is None else f"{bound:g}"
        yield f'{name}_bucket{{{label},le="{edge}"}} {below}'
    yield f"{name}_sum{{{label}}} {histogram.total!r}"
    yield f"{name}_count{{{label}}} {below}"


def _samples(name: str, values: Iterable[tuple[str, float]]) -> Iterator[str]:
    for labels, value in values:
        shown = f"{{{labels}}}" if labels else ""
        yield f"{name}{shown} {value!r}"
