"""From streams, as the client saw them, to numbers. Times in seconds or as the names say.

Two rates of output tokens:

    steady   between the first request and the moment when the first worker runs out of requests:
             all workers are busy all the time. Tokens of a request that goes on beyond it are
             counted up to there
    whole    all tokens over all the time, the last workers' ends included
"""

from collections.abc import Sequence
from itertools import pairwise

from benchmarks.engines.figures import quantile
from benchmarks.engines.jobs import Stream

__all__ = [
    "LoadFigures",
    "faults",
    "gaps_before_s",
    "gaps_during_s",
    "gaps_s",
    "latency_s",
    "load_figures",
    "steady_rate",
    "ttft_s",
    "whole_rate",
]

LoadFigures = dict[str, float]

_NS = 1e9


def faults(streams: Sequence[Stream]) -> list[str]:
    """What makes any of them invalid, each kind once."""
    return sorted({stream.error for stream in streams if stream.error})


def ttft_s(stream: Stream) -> float:
    """To the first text; to the end where all of the answer's text is withheld."""
    first_ns = stream.token_ns[0] if stream.token_ns else stream.end_ns
    return (first_ns - stream.sent_ns) / _NS


def latency_s(stream: Stream) -> float:
    """From sending the request to the answer's last byte."""
    return (stream.end_ns - stream.sent_ns) / _NS


def gaps_s(stream: Stream) -> list[float]:
    """Between successive texts."""
    return [(after - before) / _NS for before, after in pairwise(stream.token_ns)]


def gaps_before_s(stream: Stream, end_ns: int) -> list[float]:
    """Gaps that were over by then."""
    return [
        (after - before) / _NS for before, after in pairwise(stream.token_ns) if after <= end_ns
    ]


def gaps_during_s(stream: Stream, begin_ns: int, end_ns: int) -> list[float]:
    """Gaps of which any part lies in the span."""
    return [
        (after - before) / _NS
        for before, after in pairwise(stream.token_ns)
        if after >= begin_ns and before <= end_ns
    ]


def whole_rate(streams: Sequence[Stream]) -> float:
    """Output tokens per second, ramp and all."""
    begin_ns = min(stream.sent_ns for stream in streams)
    end_ns = max(stream.end_ns for stream in streams)
    return sum(stream.completion_tokens for stream in streams) * _NS / (end_ns - begin_ns)


def steady_rate(streams: Sequence[Stream]) -> float:
    """Output tokens per second while every worker had a request running."""
    begin_ns = min(stream.sent_ns for stream in streams)
    ends: dict[int, int] = {}
    for stream in streams:
        ends[stream.worker] = max(ends.get(stream.worker, 0), stream.end_ns)
    end_ns = min(ends.values())
    tokens = sum(_tokens_until(stream, end_ns) for stream in streams)
    return tokens * _NS / (end_ns - begin_ns)


def load_figures(streams: Sequence[Stream]) -> LoadFigures:
    """The figures of one closed loop."""
    gaps = [gap for stream in streams for gap in gaps_s(stream)]
    ttfts = [ttft_s(stream) for stream in streams]
    latencies = [latency_s(stream) for stream in streams]
    return {
        "tokens_per_s": steady_rate(streams),
        "whole_tokens_per_s": whole_rate(streams),
        "ttft_p50_ms": 1e3 * quantile(ttfts, 0.5),
        "ttft_p99_ms": 1e3 * quantile(ttfts, 0.99),
        "itl_p50_ms": 1e3 * quantile(gaps, 0.5),
        "itl_p99_ms": 1e3 * quantile(gaps, 0.99),
        "latency_p50_s": quantile(latencies, 0.5),
        "latency_p99_s": quantile(latencies, 0.99),
        "requests": len(streams),
        "tokens": sum(stream.completion_tokens for stream in streams),
        "texts": sum(len(stream.token_ns) for stream in streams),
    }


def _tokens_until(stream: Stream, end_ns: int) -> float:
    """Tokens that had arrived by then: an event stands for its share of the request's tokens."""
    if stream.end_ns <= end_ns:
        return stream.completion_tokens
    arrived = sum(stamp <= end_ns for stamp in stream.token_ns)
    return stream.completion_tokens * arrived / max(len(stream.token_ns), 1)
