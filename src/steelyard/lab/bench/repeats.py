"""The same workload several times: how much does a result differ from run to run?"""

from collections.abc import Sequence

import msgspec
import numpy as np

from steelyard.lab.bench.session import Session
from steelyard.lab.load import Workload
from steelyard.lab.result import RunResult
from steelyard.lab.series import Repeats
from steelyard.lab.stats import Estimate, Slo

__all__ = ["across_runs", "measure_repeats", "summarise_repeats"]


async def measure_repeats(
    session: Session,
    workload: Workload,
    *,
    times: int,
    slo: Slo | None = None,
    name: str = "",
    warm_up_s: float | None = None,
) -> Repeats:
    """Each run has a seed of its own. Ends early when the session is stopped."""
    runs: list[RunResult] = []
    for number in range(times):
        if session.is_stopped:
            break
        again = msgspec.structs.replace(workload, seed=workload.seed + number)
        measured = await session.run(
            again,
            slo=slo,
            name=f"{name} {number + 1}".strip(),
            warm_up_s=warm_up_s,
            keeps_requests=False,
        )
        runs.append(measured.result)
    return summarise_repeats(runs)


def summarise_repeats(runs: Sequence[RunResult]) -> Repeats:
    """At least one run."""
    metrics = [name for name in runs[0].latencies if all(name in run.latencies for run in runs)]
    across: dict[str, dict[str, Estimate]] = {}
    for metric in metrics:
        summaries = [run.latencies[metric] for run in runs]
        across[metric] = {"mean": across_runs([summary.mean.value for summary in summaries])}
        for name in summaries[0].percentiles:
            values = [summary.percentiles[name].value for summary in summaries]
            across[metric][name] = across_runs(values)
    return Repeats(
        runs=list(runs),
        across=across,
        output_tokens_per_s=across_runs([run.throughput.output_tokens_per_s for run in runs]),
    )


def across_runs(values: Sequence[float]) -> Estimate:
    """Mean of independent runs with Student's interval; without one for a single run."""
    mean = float(np.mean(values))
    if len(values) < 2:
        return Estimate(mean)
    from scipy import stats  # takes a second to load

    half = float(stats.t.ppf(0.975, len(values) - 1) * stats.sem(values))
    return Estimate(mean, mean - half, mean + half)
