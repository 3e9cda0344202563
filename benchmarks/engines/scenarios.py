"""The loads, each a function from a target to rows. Sizes are those of the comparison's targets.

Every load is preceded by a few short requests that are not counted: a server that was paused must
find its pages and threads again.
"""

import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import chain

from benchmarks.engines import measures
from benchmarks.engines.figures import quantile
from benchmarks.engines.jobs import Ask, ClientReport, Stream, Worker
from benchmarks.engines.machine import CpuMeter
from benchmarks.engines.prompts import Prompts
from benchmarks.engines.record import Row
from benchmarks.engines.target import Target

__all__ = ["Bench", "arrival", "closed_loop", "prefill", "prefix", "warm_up"]

PROMPT_TOKENS = 128
OUTPUT_TOKENS = 128
LONG_TOKENS = 1500
SHARED_TOKENS = 1400

_ASKS = {1: 4, 2: 4, 4: 3, 8: 3}
_MANY_ASKS = 3
"""Requests per worker at higher concurrencies: enough for some seconds."""
_STREAMS = 4
_STREAM_TOKENS = 320
_UNDISTURBED = 40
"""Texts per stream before the long prompt arrives."""


@dataclass(frozen=True, slots=True)
class Bench:
    """How carefully to measure."""

    round: int
    attempts: int = 3

    def measure(
        self,
        target: Target,
        scenario: str,
        make_workers: Callable[[int], Sequence[Worker]],
        *,
        concurrency: int,
    ) -> tuple[Row, list[Stream]]:
        """Load `target` until it was left in peace, at most `attempts` times.

        `make_workers` is told the number of the attempt, because prompts must not repeat.
        """
        for attempt in range(1, self.attempts + 1):
            row, report = self._once(target, scenario, make_workers(attempt))
            row.concurrency = concurrency
            row.attempts = attempt
            if row.faults or not row.is_disturbed:
                break
        return row, report.streams

    def _once(
        self, target: Target, scenario: str, workers: Sequence[Worker]
    ) -> tuple[Row, ClientReport]:
        meter, cpu_s, began_s = CpuMeter(), target.tree.cpu_s(), time.monotonic()
        report = target.run(workers)
        elapsed_s = time.monotonic() - began_s
        usage, engine_s = meter.read(), target.tree.cpu_s() - cpu_s
        all_s = elapsed_s * meter.cpus
        is_served = report.wakeups > 0
        row = Row(
            scenario=scenario,
            engine=target.key,
            round=self.round,
            faults=measures.faults(report.streams),
            others=max(0.0, usage.busy - (engine_s + is_served * report.cpu_s) / all_s),
            stolen=usage.stolen,
            client_cpu=report.cpu_s / report.elapsed_s if is_served else 0.0,
            client_wait_us=1e6 * report.wait_s / report.wakeups if is_served else 0.0,
            engine_cpu_s=engine_s,
        )
        return row, report


def warm_up(target: Target, *, thoroughly: bool) -> None:
    """Bring a target up to speed: after its start (`thoroughly`), or after a pause."""
    prompts = Prompts("warm-up", target.key, time.monotonic_ns())
    target.run(prompts.workers(2, 1, prompt_tokens=16, max_tokens=8))
    if thoroughly:
        target.run(prompts.workers(1, 1, prompt_tokens=LONG_TOKENS, max_tokens=16))
        for concurrency in (1, 2, 4, 8, 16):
            target.run(prompts.workers(concurrency, 1, prompt_tokens=PROMPT_TOKENS, max_tokens=32))


def closed_loop(
    bench: Bench, concurrency: int, target: Target, scenario: str = "decode"
) -> list[Row]:
    """`concurrency` requests at any time, 128 tokens in and 128 out."""
    asks = _ASKS.get(concurrency, _MANY_ASKS)

    def workers(attempt: int) -> list[Worker]:
        prompts = Prompts(scenario, bench.round, concurrency, attempt)
        return prompts.workers(
            concurrency, asks, prompt_tokens=PROMPT_TOKENS, max_tokens=OUTPUT_TOKENS
        )

    row, streams = bench.measure(target, scenario, workers, concurrency=concurrency)
    if not row.faults:
        row.figures = measures.load_figures(streams)
        row.figures["memory_bytes"] = float(target.tree.memory().alone_bytes)
        row.lists = {
            "ttft_ms": _milliseconds(measures.ttft_s(stream) for stream in streams),
            "latency_ms": _milliseconds(measures.latency_s(stream) for stream in streams),
        }
    return [row]


def prefill(bench: Bench, concurrency: int, target: Target) -> list[Row]:
    """Long prompts like no other, one output token each."""
    asks = 4 if concurrency == 1 else 1

    def workers(attempt: int) -> list[Worker]:
        prompts = Prompts("prefill", bench.round, concurrency, attempt)
        return prompts.workers(concurrency, asks, prompt_tokens=LONG_TOKENS, max_tokens=1)

    row, streams = bench.measure(target, "prefill", workers, concurrency=concurrency)
    if not row.faults:
        latencies = [measures.latency_s(stream) for stream in streams]
        if concurrency == 1:
            row.figures["prompt_tokens_per_s"] = LONG_TOKENS / quantile(latencies, 0.5)
        else:
            span_ns = max(s.end_ns for s in streams) - min(s.sent_ns for s in streams)
            row.figures["prompt_tokens_per_s"] = 1e9 * LONG_TOKENS * len(streams) / span_ns
        row.lists["latency_ms"] = _milliseconds(latencies)
        row.figures["cached_tokens"] = float(sum(s.cached_tokens or 0 for s in streams))
    return [row]


def prefix(bench: Bench, target: Target) -> list[Row]:
    """A long shared beginning: cold and then warm, one by one; then four at once when cold."""
    own_tokens = LONG_TOKENS - SHARED_TOKENS

    def in_turn(attempt: int) -> list[Worker]:
        prompts = Prompts("prefix", bench.round, attempt)
        shared = prompts.sharing(4, shared_tokens=SHARED_TOKENS, own_tokens=own_tokens)
        return [Worker([Ask(ids, 8) for ids in shared])]

    def at_once(attempt: int) -> list[Worker]:
        prompts = Prompts("prefix at once", bench.round, attempt)
        shared = prompts.sharing(4, shared_tokens=SHARED_TOKENS, own_tokens=own_tokens)
        return [Worker([Ask(ids, 8)]) for ids in shared]

    row, streams = bench.measure(target, "prefix", in_turn, concurrency=1)
    if not row.faults:
        cold, *warm = [1e3 * measures.ttft_s(stream) for stream in streams]
        row.figures = {"cold_ttft_ms": cold, "warm_ttft_ms": quantile(warm, 0.5)}
        row.figures["warm_share"] = row.figures["warm_ttft_ms"] / cold
        row.figures |= _computed(streams)
        row.lists["ttft_ms"] = [cold, *warm]
    herd, streams = bench.measure(target, "prefix at once", at_once, concurrency=4)
    if not herd.faults:
        ttfts = _milliseconds(measures.ttft_s(stream) for stream in streams)
        herd.figures = {"last_ttft_ms": max(ttfts)} | _computed(streams)
        herd.lists["ttft_ms"] = ttfts
    return [row, herd]


def arrival(bench: Bench, target: Target) -> list[Row]:
    """A long prompt arrives while four streams run: how long are they kept waiting for a token?"""

    def workers(attempt: int) -> list[Worker]:
        prompts = Prompts("arrival", bench.round, attempt)
        streams = prompts.workers(
            _STREAMS, 1, prompt_tokens=PROMPT_TOKENS, max_tokens=_STREAM_TOKENS
        )
        late = [Ask(prompts.ids(LONG_TOKENS), 4)]
        return [*streams, Worker(late, start_after_events=_STREAMS * _UNDISTURBED)]

    row, streams = bench.measure(target, "arrival", workers, concurrency=_STREAMS)
    if row.faults:
        return [row]
    running = [stream for stream in streams if stream.worker < _STREAMS]
    long = next(stream for stream in streams if stream.worker == _STREAMS)
    first_ns = long.token_ns[0] if long.token_ns else long.end_ns
    before = list(chain(*(measures.gaps_before_s(s, long.sent_ns) for s in running)))
    during = list(chain(*(measures.gaps_during_s(s, long.sent_ns, first_ns) for s in running)))
    if not before or not during:
        row.faults = ["the long prompt did not arrive while the streams ran"]
        return [row]
    row.figures = {
        "before_p50_ms": 1e3 * quantile(before, 0.5),
        "during_p50_ms": 1e3 * quantile(during, 0.5),
        "during_p99_ms": 1e3 * quantile(during, 0.99),
        "ratio": quantile(during, 0.99) / quantile(before, 0.5),
        "long_ttft_ms": 1e3 * measures.ttft_s(long),
        "gaps": float(len(during)),
    }
    return [row]


def _computed(streams: Sequence[Stream]) -> dict[str, float]:
    """Prompt tokens that were not found in a cache; nothing where the server does not say."""
    if any(stream.cached_tokens is None for stream in streams):
        return {}
    computed = sum(s.prompt_tokens - (s.cached_tokens or 0) for s in streams)
    return {"computed_tokens": float(computed)}


def _milliseconds(seconds: Iterable[float]) -> list[float]:
    return [round(1e3 * value, 3) for value in seconds]
