"""From records to numbers: latencies, quantiles with intervals, goodput, concurrency, arrivals.

Pure functions of records. `audit` decides whether the numbers may be believed, `summary` puts them
together.
"""

from steelyard.lab.stats.arrival_process import ArrivalTest, open_loop_test, replay_test
from steelyard.lab.stats.goodput import Goodput, Slo, are_good, goodput, wilson
from steelyard.lab.stats.latencies import (
    Gaps,
    RequestLatencies,
    Window,
    gaps,
    request_latencies,
    worst_gaps_s,
)
from steelyard.lab.stats.quantiles import (
    PERCENTILES,
    Estimate,
    Summary,
    block_length,
    bootstrap_counts,
    quantile_estimates,
    summarise,
)
from steelyard.lab.stats.steady import Truncation, mser
from steelyard.lab.stats.timeline import (
    Concurrency,
    Timeline,
    concurrency,
    in_system,
    timeline,
    tokens_per_s,
)

__all__ = [
    "PERCENTILES",
    "ArrivalTest",
    "Concurrency",
    "Estimate",
    "Gaps",
    "Goodput",
    "RequestLatencies",
    "Slo",
    "Summary",
    "Timeline",
    "Truncation",
    "Window",
    "are_good",
    "block_length",
    "bootstrap_counts",
    "concurrency",
    "gaps",
    "goodput",
    "in_system",
    "mser",
    "open_loop_test",
    "quantile_estimates",
    "replay_test",
    "request_latencies",
    "summarise",
    "timeline",
    "tokens_per_s",
    "wilson",
    "worst_gaps_s",
]
