"""What the metrics of each server mean: one set of facts, whoever publishes it.

A fact that a server does not publish is None, and `explain` says what cannot be known for it.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TypeVar

from steelyard.lab.server_metrics import ServerMetrics

__all__ = ["EngineFacts", "read_engine_facts"]

ValueT = TypeVar("ValueT")

_WAITING = (
    "vllm:num_requests_waiting",
    "steelyard_engine_waiting",
    "sglang:num_queue_reqs",
    "llamacpp:requests_deferred",
)
_RUNNING = (
    "vllm:num_requests_running",
    "steelyard_engine_running",
    "sglang:num_running_reqs",
    "llamacpp:requests_processing",
)
_KV_SHARE = (
    "vllm:kv_cache_usage_perc",
    "vllm:gpu_cache_usage_perc",
    "steelyard_engine_kv_used_ratio",
    "sglang:token_usage",
    "llamacpp:kv_cache_usage_ratio",
)
_PREEMPTIONS = (
    "vllm:num_preemptions_total",
    "vllm:num_preemptions",
    "steelyard_engine_preemptions_total",
    "sglang:num_retractions_total",
)
_QUEUE = ("vllm:request_queue_time_seconds", "sglang:queue_time_seconds")
_PREFILL = ("vllm:request_prefill_time_seconds",)
_DECODE = ("vllm:request_decode_time_seconds",)
_ENGINE_GAP = (
    "vllm:inter_token_latency_seconds",
    "vllm:time_per_output_token_seconds",
    "sglang:inter_token_latency_seconds",
)
_DOOR_GAP = ("steelyard_inter_token_latency_seconds",)
_FAMILIES = {
    "vLLM": "vllm:",
    "SGLang": "sglang:",
    "llama.cpp": "llamacpp:",
    "Steelyard": "steelyard_",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineFacts:
    """Of the whole run. None: not published."""

    dialects: tuple[str, ...] = ()
    waiting: float | None = None
    """Sequences waiting for admission, on average."""
    running: float | None = None
    kv_peak: float | None = None
    """Highest share of KV memory in use."""
    preemptions: float | None = None
    queue_s: float | None = None
    """Mean per request."""
    prefill_s: float | None = None
    decode_s: float | None = None
    gap_s: float | None = None
    """Between tokens as the engine made them."""
    door_gap_s: float | None = None
    """The same as a gateway handed them out."""
    prefill_busy_s: float | None = None
    """Processing time of all prompts together."""
    decode_busy_s: float | None = None


def read_engine_facts(metrics: ServerMetrics | None) -> EngineFacts:
    """Nothing is known without metrics."""
    if metrics is None:
        return EngineFacts()
    names = [*metrics.gauges, *metrics.counters, *metrics.histograms]
    return EngineFacts(
        dialects=tuple(
            family
            for family, prefix in _FAMILIES.items()
            if any(name.startswith(prefix) for name in names)
        ),
        waiting=_gauge(metrics, _WAITING, is_peak=False),
        running=_gauge(metrics, _RUNNING, is_peak=False),
        kv_peak=_gauge(metrics, _KV_SHARE, is_peak=True),
        preemptions=_first(metrics.counters.get(name) for name in _PREEMPTIONS),
        queue_s=_mean(metrics, _QUEUE),
        prefill_s=_mean(metrics, _PREFILL),
        decode_s=_mean(metrics, _DECODE),
        gap_s=_mean(metrics, _ENGINE_GAP),
        door_gap_s=_mean(metrics, _DOOR_GAP),
        prefill_busy_s=metrics.counters.get("llamacpp:prompt_seconds_total"),
        decode_busy_s=metrics.counters.get("llamacpp:tokens_predicted_seconds_total"),
    )


def _gauge(metrics: ServerMetrics, names: Iterable[str], *, is_peak: bool) -> float | None:
    seen = _first(metrics.gauges.get(name) for name in names)
    if seen is None:
        return None
    return seen.maximum if is_peak else seen.mean


def _mean(metrics: ServerMetrics, names: Iterable[str]) -> float | None:
    found = (metrics.histograms.get(name) for name in names)
    return _first(growth.mean for growth in found if growth is not None)


def _first(values: Iterable[ValueT | None]) -> ValueT | None:
    return next((value for value in values if value is not None), None)
