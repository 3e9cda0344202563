"""Every metric there is, as one table: name, type, labels, buckets, unit and meaning.

Nothing is measured here: `metrics` keeps the values, and the reference is generated from this
table. Names follow Prometheus' conventions (base units in the name, `_total` on counters) under a
prefix of our own; a label whose values others choose (`model`, `tenant`) is never combined with
another such label, so the number of series stays bounded by a sum and not by a product.
"""

import enum
from dataclasses import dataclass

__all__ = ["CATALOGUE", "OPEN_LABELS", "Kind", "Merge", "MetricSpec"]


class Kind(enum.Enum):
    """What a metric's value does."""

    COUNTER = "counter"
    """Only grows, and starts from zero with the process."""
    GAUGE = "gauge"
    HISTOGRAM = "histogram"


class Merge(enum.Enum):
    """What a gauge of several worker processes amounts to. Counters and histograms add up."""

    SUM = "sum"
    LEAST = "least"
    """The smallest value: the worst one counts."""
    OWN = "own"
    """The value of the process that keeps the workers; theirs mean nothing."""


OPEN_LABELS = frozenset({"model", "tenant"})
"""Labels whose values other people choose, a thousand of them if they like."""


@dataclass(frozen=True, slots=True)
class MetricSpec:
    """One metric: a family of series, one per combination of label values."""

    name: str
    kind: Kind
    help: str
    labels: tuple[str, ...] = ()
    buckets: tuple[float, ...] = ()
    """Upper bounds of a histogram, inclusive; `+Inf` is added."""
    merge: Merge = Merge.SUM

    @property
    def unit(self) -> str:
        """The base unit that the name ends in; empty when it counts things without one."""
        last = self.name.removesuffix("_total").rpartition("_")[2]
        return last if last in _UNITS else ""


_UNITS = frozenset({"bytes", "celsius", "hertz", "ratio", "seconds", "tokens", "watts"})

_LATENCY_S = (
    *(0.001, 0.0025, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.15, 0.2, 0.3, 0.5, 0.75),
    *(1.0, 1.5, 2.5, 5.0, 7.5, 10.0, 20.0, 40.0, 80.0, 160.0),
)
_GAP_S = (
    *(0.0005, 0.001, 0.002, 0.003, 0.005, 0.0075, 0.01, 0.015, 0.02, 0.025, 0.03, 0.04, 0.05),
    *(0.06, 0.08, 0.1, 0.15, 0.2, 0.3, 0.5, 0.75, 1.0, 2.5, 5.0, 10.0),
)
_DURATION_S = (
    *(0.05, 0.1, 0.25, 0.5, 0.75, 1.0, 1.5, 2.5, 5.0, 7.5, 10.0, 15.0, 20.0, 30.0, 45.0, 60.0),
    *(90.0, 120.0, 240.0, 480.0, 960.0, 1920.0),
)
_TOKENS = tuple(float(2**power) for power in range(21))


def _counter(name: str, help_text: str, *labels: str) -> MetricSpec:
    return MetricSpec(f"steelyard_{name}_total", Kind.COUNTER, help_text, labels)


def _gauge(name: str, help_text: str, *labels: str, merge: Merge = Merge.SUM) -> MetricSpec:
    return MetricSpec(f"steelyard_{name}", Kind.GAUGE, help_text, labels, merge=merge)


def _histogram(name: str, help_text: str, buckets: tuple[float, ...], *labels: str) -> MetricSpec:
    return MetricSpec(f"steelyard_{name}", Kind.HISTOGRAM, help_text, labels, buckets)


_DOOR = (
    _counter("requests_received", "Inference requests whose header was read.", "model"),
    _gauge("requests_in_flight", "Requests received and not yet ended.", "model"),
    _gauge("requests_waiting", "Of these, the ones not yet handed to an engine.", "model"),
    _counter(
        "requests_ended",
        "Requests by how they ended. outcome: finished (reason: stop, length), failed or rejected "
        "(reason: code of the error), cancelled (reason: disconnect, deadline, shutdown). "
        "Received = in flight + ended, always.",
        "model",
        "outcome",
        "reason",
    ),
    _counter("tenant_requests_ended", "Requests by tenant and outcome.", "tenant", "outcome"),
    _counter("tenant_tokens", "Tokens by tenant. kind: prompt, cached, output.", "tenant", "kind"),
    _counter("prompt_tokens", "Tokens of the prompts given to an engine.", "model"),
    _counter("cached_tokens", "Prompt tokens found in the prefix cache.", "model"),
    _counter("output_tokens", "Tokens sent to clients.", "model"),
    _histogram(
        "time_to_first_token_seconds",
        "From the request's header to its first token.",
        _LATENCY_S,
        "model",
    ),
    _histogram(
        "inter_token_latency_seconds",
        "Between tokens of one stream. Tokens that came together share the gap equally.",
        _GAP_S,
        "model",
    ),
    _histogram(
        "request_duration_seconds",
        "From the header to the end, of requests that finished.",
        _DURATION_S,
        "model",
    ),
    _histogram(
        "request_queue_seconds",
        "From the header to the hand-over to an engine.",
        _LATENCY_S,
        "model",
    ),
    _histogram("request_prompt_tokens", "Prompt length.", _TOKENS, "model"),
    _histogram(
        "request_output_tokens",
        "Output length of requests that finished, all choices together.",
        _TOKENS,
        "model",
    ),
    _counter("http_responses", "Answers of any kind.", "route", "status"),
    _gauge("connections", "Open connections of clients."),
    _counter("connections_accepted", "Connections opened by clients."),
    _counter(
        "connections_closed",
        "Connections by why they closed: client, server, limit, header_timeout, body_timeout, "
        "idle_timeout, write_timeout, bad_request, shutdown. Accepted = open + closed, always.",
        "reason",
    ),
)

_ACCESS = (
    _counter(
        "auth_refusals",
        "Requests refused for their credentials. reason: missing, malformed, type, key, signature, "
        "issuer, claims, expired, not_yet_valid, lifetime, revoked, grant.",
        "reason",
    ),
    _counter(
        "auth_key_fetches",
        "Fetches of the identity provider's keys. outcome: ok, failed.",
        "outcome",
    ),
    _gauge(
        "auth_keys_fetched_timestamp_seconds",
        "When the identity provider's keys were fetched last, in Unix time.",
        "issuer",
        merge=Merge.LEAST,
    ),
    _counter(
        "auth_file_reads",
        "Readings of changed files of keys and revoked tokens. outcome: ok, failed.",
        "outcome",
    ),
    _counter(
        "tenant_limited",
        "Requests refused because a budget was spent. resource: requests, tokens, concurrency.",
        "tenant",
        "resource",
    ),
    _gauge(
        "limits_store_up",
        "1 while the shared store of budgets answers, 0 while each process counts alone.",
        "store",
        merge=Merge.LEAST,
    ),
    _counter("limits_store_errors", "Questions that the shared store did not answer.", "store"),
)

_SERVICE = (
    _counter(
        "config_reloads",
        "Readings of a changed deployment file. outcome: applied, unchanged, refused.",
        "outcome",
    ),
    _gauge(
        "config_reload_ok",
        "1 while the newest deployment file is in force, 0 after one that was refused.",
        merge=Merge.OWN,
    ),
    _gauge(
        "config_restart_needed",
        "1 while the deployment file says something that only a restart can bring about.",
        merge=Merge.OWN,
    ),
    _gauge("workers", "Processes that serve the door.", merge=Merge.OWN),
    _counter("worker_restarts", "How often such a process was replaced."),
)

_ENGINE = (
    _gauge("engine_up", "1 while the replica is ready or draining, else 0.", "replica"),
    _gauge(
        "engine_state",
        "1 for the replica's present state (starting, ready, draining, lost), 0 for the others.",
        "replica",
        "state",
    ),
    _counter("engine_restarts", "How often the replica's process was replaced.", "replica"),
    _gauge("engine_running", "Sequences that hold KV memory.", "replica"),
    _gauge("engine_waiting", "Sequences that wait for admission.", "replica"),
    _gauge("engine_kv_blocks", "Blocks of KV memory that exist.", "replica"),
    _gauge("engine_kv_blocks_used", "Blocks held by running sequences.", "replica"),
    _gauge("engine_kv_used_ratio", "Share of the blocks held by running sequences.", "replica"),
    _gauge("engine_step_seconds", "Recent mean time of a step.", "replica"),
    _counter("engine_steps", "Steps computed.", "replica"),
    _counter("engine_prompt_tokens", "Prompt tokens of admitted requests.", "replica"),
    _counter("engine_cached_tokens", "Of these, found in the prefix cache.", "replica"),
    _counter(
        "engine_computed_tokens",
        "Tokens run through the model: prompts, outputs and recomputation.",
        "replica",
    ),
    _counter("engine_produced_tokens", "Tokens drawn.", "replica"),
    _counter("engine_preemptions", "Sequences set back to free memory for others.", "replica"),
    _counter(
        "engine_requests_ended",
        "Sequences by how they ended: finished, aborted, failed.",
        "replica",
        "outcome",
    ),
    _counter(
        "engine_admission_holds",
        "How often a waiting sequence was held back, by cause.",
        "replica",
        "cause",
    ),
)

_FAILOVER = (
    _counter(
        "failover_moves",
        "Requests that went on at another attempt. stage: waiting (before the first token), "
        "streaming. reason: code of the error that ended the attempt before.",
        "stage",
        "reason",
    ),
    _counter(
        "failover_given_up",
        "Requests that a replica had failed and that ended with an error all the same.",
        "stage",
        "reason",
    ),
    _histogram(
        "failover_gap_seconds",
        "From the last sign of life of a failed attempt to the first token of the next.",
        _LATENCY_S,
    ),
    _counter("failover_budget_refusals", "Retries that the retry budget did not allow."),
    _counter(
        "failover_hedges",
        "Second replicas asked because a first token was late. outcome: won, lost.",
        "outcome",
    ),
    _counter("quarantined_requests", "Requests refused because replicas died of their like."),
    _counter(
        "shed_requests",
        "Requests refused because no replica could have begun them in time, by class.",
        "priority",
    ),
    _gauge(
        "replica_health",
        "1 for the replica's present state (healthy, suspect, ejected, returning, absent).",
        "replica",
        "state",
        merge=Merge.LEAST,
    ),
    _counter(
        "replica_ejections",
        "How often a replica was taken out of rotation. reason: silent, stuck, stalled, lost, "
        "errors, or the code of the error that said so.",
        "replica",
        "reason",
    ),
    _gauge("replica_in_flight", "Requests given to the replica and not yet ended.", "replica"),
)

_HARDWARE = (
    _gauge("host_memory_bytes", "Memory of the machine."),
    _gauge("host_memory_available_bytes", "Memory that programs can still get."),
    _gauge("host_swap_used_bytes", "Swap space in use."),
    _gauge("host_cpus", "Logical processors."),
    _gauge("host_cpu_busy_ratio", "Busy share of all processors since the last sample."),
    _gauge("process_resident_bytes", "Resident memory (RSS).", "process"),
    _gauge(
        "process_proportional_bytes",
        "Resident memory with shared pages divided among their users (PSS); Linux only.",
        "process",
    ),
    _gauge("process_cpu_cores", "Processors kept busy since the last sample.", "process"),
    _gauge("process_threads", "Threads.", "process"),
    _gauge("gpu_info", "Always 1; the labels say which device it is.", "gpu", "name", "uuid"),
    _gauge("gpu_memory_bytes", "Memory of the device.", "gpu"),
    _gauge("gpu_memory_used_bytes", "Memory in use on the device.", "gpu"),
    _gauge("gpu_busy_ratio", "Share of time in which a kernel ran.", "gpu"),
    _gauge("gpu_temperature_celsius", "Temperature of the chip.", "gpu"),
    _gauge("gpu_power_watts", "Power drawn.", "gpu"),
    _gauge("gpu_clock_hertz", "Clock of the multiprocessors.", "gpu"),
    _counter("hardware_samples", "Samples taken of host, processes and devices."),
    _counter(
        "hardware_sample_errors",
        "Samples that failed in part. source: host, gpu, file.",
        "source",
    ),
)

_ABOUT = (
    _gauge(
        "build_info",
        "Always 1; the labels say what runs.",
        "version",
        "python",
        merge=Merge.OWN,
    ),
    _gauge(
        "start_time_seconds",
        "When this process began to count, in Unix time.",
        merge=Merge.OWN,
    ),
)

CATALOGUE: tuple[MetricSpec, ...] = (
    *_DOOR,
    *_ACCESS,
    *_SERVICE,
    *_ENGINE,
    *_FAILOVER,
    *_HARDWARE,
    *_ABOUT,
)
"""All metrics, in the order of the reference."""
