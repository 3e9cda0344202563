"""The result of one run: what is written to JSON, and what reports, comparisons and gates read.

The schema is versioned: `SCHEMA` changes when a field changes its meaning or goes; new fields may
come at any time. Times are milliseconds where a name says `_ms`, seconds where it says `_s`; what
is not known is null. `summary` makes results out of records, `docs/bench-results.md` explains them.
"""

from pathlib import Path
from typing import Any

import msgspec

from steelyard.contract.errors import InvalidRequest
from steelyard.lab.audit import Audit
from steelyard.lab.load import TokenScale, Workload
from steelyard.lab.server_metrics import ServerMetrics
from steelyard.lab.stats import ArrivalTest, Estimate, Goodput, Slo, Summary, Timeline

__all__ = [
    "METRICS",
    "SCHEMA",
    "ClientFacts",
    "Counts",
    "HardwareFacts",
    "RequestTable",
    "RunResult",
    "TargetFacts",
    "Throughput",
    "TokenFacts",
    "WindowFacts",
    "encode_result",
    "json_schema",
    "read_result",
    "write_result",
]

SCHEMA = "steelyard.bench.run/1"

METRICS: dict[str, str] = {
    "ttft_ms": "time to first token, reasoning included, from the scheduled time",
    "ttft_sent_ms": "the same from when the request was sent",
    "ttfa_ms": "time to first token of the answer proper, where the model reasoned before it",
    "itl_ms": "time between tokens; an event of k tokens counts as k shorter gaps",
    "itl_event_ms": "time between events, however many tokens they bring",
    "tpot_ms": "time per output token after the first event, one value per request",
    "e2e_ms": "end to end, from the scheduled time",
    "e2e_sent_ms": "the same from when the request was sent",
    "shed_ms": "from being sent to being turned away",
    "connect_ms": "to open a connection, where one had to be opened",
}
"""Every latency of a result, by its key in `RunResult.latencies`."""


class TargetFacts(msgspec.Struct, frozen=True, kw_only=True):
    """The server as it introduced itself. Holds no credentials."""

    url: str
    model: str
    api: str
    server: str = ""
    """Its `Server` header."""
    version: str = ""
    """What its `/version` says."""
    context_tokens: int | None = None
    """None: it does not say."""
    extras: dict[str, bool] = {}
    """Which parameters beyond OpenAI's oldest ones it took."""
    counts_tokens: bool = False
    """Whether it reports usage."""
    scale: TokenScale = TokenScale()
    """How it counts the words of synthetic prompts."""


class ClientFacts(msgspec.Struct, frozen=True, kw_only=True):
    """The load generator's own share."""

    workers: int
    cpu_share: float
    """Of a processor, of the busiest process."""
    cpu_us_per_event: float
    """Processor time of all processes over all token events."""
    loop_lag_p50_ms: float
    loop_lag_p99_ms: float
    dispatch_lag_p50_ms: float
    """From a request's scheduled time to when the client turned to it."""
    dispatch_lag_p99_ms: float
    connections_opened: int
    steelyard: str
    """Version of this program."""
    python: str
    machine: str
    """Architecture, processors, operating system."""


class WindowFacts(msgspec.Struct, frozen=True, kw_only=True):
    """The part of the run that is measured: [begin, end), since the start."""

    begin_s: float
    end_s: float
    is_settled: bool
    """Whether a steady state was found; otherwise the window is the whole run."""
    warm_up: str
    """How the beginning was found: `MSER-5`, or as asked."""


class Counts(msgspec.Struct, frozen=True, kw_only=True):
    """Requests of the whole run, warm-up included."""

    requests: int
    complete: int
    shed: int
    failed: int
    abandoned: int
    """Cut off by the end of the run."""
    measured: int
    """Complete ones that were scheduled in the window: those the latencies are made of."""
    by_outcome: dict[str, int]
    cut_to_context: int
    """Requests of the plan that were shortened to fit the context."""


class Throughput(msgspec.Struct, frozen=True, kw_only=True):
    """Per second of the window."""

    offered_per_s: float
    """Requests scheduled."""
    sent_per_s: float
    complete_per_s: float
    """Requests that ended well."""
    output_tokens_per_s: float
    prompt_tokens_per_s: float
    """Of requests whose first token came in the window."""
    output_tokens_per_s_per_user: float | None
    """One over the median time per output token."""


class TokenFacts(msgspec.Struct, frozen=True, kw_only=True):
    """Output tokens of complete requests, counted in every way; null where nobody counts so."""

    output: int
    """By the best count there is for each request."""
    by_usage: int | None
    by_ids: int | None
    by_chunks: int
    retokenised: int | None
    """Our tokenizer's count of a sample of the answers."""
    retokenised_of: int | None
    """What the best count says of that sample."""
    reasoning: int | None
    prompt_asked: int
    prompt: int | None
    cached: int | None
    output_asked: int
    bundled_requests: int
    """Requests of which at least one event brought several tokens."""
    estimated_requests: int
    """Requests whose bundles are estimated from the lengths of their texts."""


class HardwareFacts(msgspec.Struct, frozen=True, kw_only=True):
    """What could be read of the machine during the run; null where it could not."""

    host_cpu_busy: float | None = None
    """Share of all processors, on average; the client's included when it runs there too."""
    host_memory_used_peak_bytes: int | None = None
    server_memory_peak_bytes: int | None = None
    """Of the server's processes together (PSS, else RSS), when it runs on this machine."""
    server_cpu_cores: float | None = None
    gpu_names: list[str] = []
    gpu_memory_used_peak_bytes: int | None = None
    """Of all devices together."""
    gpu_busy: float | None = None
    gpu_power_mean_watts: float | None = None
    gpu_power_peak_watts: float | None = None
    samples: int = 0


class RequestTable(msgspec.Struct, frozen=True, kw_only=True):
    """Every request in columns, in order of scheduled times; null where there is no value."""

    session: list[int]
    turn: list[int]
    scheduled_s: list[float]
    outcome: list[str]
    prompt_tokens: list[int | None]
    output_tokens: list[int]
    ttft_ms: list[float | None]
    tpot_ms: list[float | None]
    itl_p99_ms: list[float | None]
    """99th percentile of the request's own gaps between tokens."""
    e2e_ms: list[float | None]
    lag_ms: list[float]
    """Of the client, before it turned to the request."""


class RunResult(msgspec.Struct, frozen=True, kw_only=True):
    """See the module."""

    schema: str = SCHEMA
    run_id: str
    name: str = ""
    """What the user calls it."""
    started_unix_s: float
    target: TargetFacts
    client: ClientFacts
    workload: Workload
    slo: Slo
    window: WindowFacts
    counts: Counts
    throughput: Throughput
    concurrency_mean: float
    """Requests in flight, over the window."""
    concurrency_peak: int
    latencies: dict[str, Summary]
    """By the keys of `METRICS`; a key is missing when nothing was measured."""
    goodput: Goodput
    tokens: TokenFacts
    arrivals: ArrivalTest | None
    """None for a closed loop."""
    audit: Audit
    hardware: HardwareFacts
    timeline: Timeline
    gap_histogram: dict[str, int] = {}
    """Gaps between tokens by the upper bound of their bin in ms: 10 bins per factor of ten."""
    messages: dict[str, int] = {}
    """What failures said, `outcome: text`, and how often."""
    requests: RequestTable | None = None
    """None: left out."""
    server_metrics: ServerMetrics | None = None
    """What the server's /metrics said. None: it shows none that are understood."""

    @property
    def is_saturated(self) -> bool:
        return "saturated" in self.audit.labels

    def percentile(self, metric: str, percent: float) -> Estimate | None:
        """Such as `("ttft_ms", 99)`; None when it was not measured."""
        summary = self.latencies.get(metric)
        return None if summary is None else summary.percentiles.get(f"p{percent:g}")


def encode_result(result: msgspec.Struct) -> bytes:
    """A run, or a series of runs, as indented JSON."""
    return msgspec.json.format(msgspec.json.encode(result), indent=1) + b"\n"


def write_result(result: RunResult, path: Path) -> None:
    """As indented JSON. Raises `InvalidRequest` when the file cannot be written."""
    try:
        path.write_bytes(encode_result(result))
    except OSError as error:
        raise InvalidRequest(error.strerror or str(error), param=str(path)) from error


def read_result(path: Path) -> RunResult:
    """Raises `InvalidRequest` when the file holds no result of this schema."""
    try:
        data = path.read_bytes()
    except OSError as error:
        raise InvalidRequest(error.strerror or str(error), param=str(path)) from error
    try:
        schema = msgspec.json.decode(data, type=_Tagged).schema
        if schema != SCHEMA:
            raise InvalidRequest(f"holds a {schema!r}, not a {SCHEMA!r}", param=str(path))
        return msgspec.json.decode(data, type=RunResult)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise InvalidRequest(f"holds no result: {error}", param=str(path)) from error


def json_schema() -> dict[str, Any]:
    """JSON Schema (2020-12) of a result."""
    return msgspec.json.schema(RunResult)


class _Tagged(msgspec.Struct):
    schema: str
