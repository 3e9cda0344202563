"""The right answers: percentiles of a truth file, defined as a client would define them.

ttft     request complete at the server → first token handed to the kernel
tpot     mean gap between tokens within one request
itl      every gap between two tokens
e2e      request complete at the server → last byte handed to the kernel
e2e from schedule    due time of the request → last byte; only for constant arrivals
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from steelyard.lab.mock import RequestTruth

__all__ = ["QUANTILES", "TrueNumbers", "percentiles", "true_numbers"]

QUANTILES = ("p50", "p90", "p95", "p99")


@dataclass(frozen=True, slots=True)
class TrueNumbers:
    """Of one run of one tool."""

    percentiles_ms: dict[str, dict[str, float]]
    """By metric, then by quantile."""
    rate: float
    """Arrivals per second, between the first and the last."""
    arrival_cv: float
    """Coefficient of variation of the gaps between arrivals: 1 for Poisson, 0 for constant."""
    requests: int
    tokens: int
    client_tokens: int
    connections: int


def true_numbers(requests: Sequence[RequestTruth], due_gap_s: float | None) -> TrueNumbers:
    """From the finished requests; `due_gap_s` is the asked gap of constant arrivals."""
    finished = [r for r in requests if r.outcome == "finished"]
    sent = [np.array(r.sent_ns) / 1e6 for r in finished]
    samples = {
        "ttft": [times[0] for times in sent],
        "tpot": [(times[-1] - times[0]) / (len(times) - 1) for times in sent],
        "itl": np.concatenate([np.diff(times) for times in sent]),
        "e2e": [(r.latency_ns or 0) / 1e6 for r in finished],
    }
    if due_gap_s is not None:
        begun_ns = requests[0].arrived_ns
        samples["e2e from schedule"] = [
            ((r.ended_ns or 0) - begun_ns) / 1e6 - number * due_gap_s * 1e3
            for number, r in enumerate(requests)
            if r.outcome == "finished"
        ]
    arrivals_s = np.array([r.arrived_ns for r in requests]) / 1e9
    gaps_s = np.diff(arrivals_s)
    return TrueNumbers(
        percentiles_ms={name: percentiles(values) for name, values in samples.items()},
        rate=float(len(gaps_s) / (arrivals_s[-1] - arrivals_s[0])),
        arrival_cv=float(gaps_s.std() / gaps_s.mean()),
        requests=len(finished),
        tokens=sum(r.output_tokens for r in finished),
        client_tokens=sum(r.client_tokens for r in finished),
        connections=len({r.connection for r in requests}),
    )


def percentiles(values: Sequence[float] | np.ndarray) -> dict[str, float]:
    """Interpolated linearly between order statistics."""
    return {name: float(np.percentile(values, int(name[1:]))) for name in QUANTILES}
