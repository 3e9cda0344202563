"""Compares results that lie in files or in the archive: single runs, or several of a side."""

import dataclasses
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from steelyard.contract.errors import InvalidRequest
from steelyard.lab.judge.comparison import Comparison, Measure, Side, judge, overall
from steelyard.lab.judge.contrasts import Contrast, compare_repeated, compare_single
from steelyard.lab.judge.fingerprint import (
    FINGERPRINT_FIELDS,
    Fingerprint,
    Unlike,
    unlike_fields,
)
from steelyard.lab.load import ClosedLoop
from steelyard.lab.result import RunResult
from steelyard.lab.stats import Estimate

__all__ = ["COMPARED", "RATE", "StoredSide", "allow_unlike", "compare_stored"]

COMPARED: tuple[tuple[str, tuple[str, ...]], ...] = (
    ("ttft_ms", ("p50", "p90", "p99")),
    ("itl_ms", ("p50", "p99")),
    ("e2e_ms", ("p50", "p99")),
)
"""Latencies and their percentiles that comparisons look at."""

RATE = Measure("output_tokens_per_s", "mean", more_is_better=True)
_FEW_RUNS = 3
"""From so many runs of one side on, how runs differ is better known from them than from within."""


@dataclass(frozen=True, slots=True)
class StoredSide:
    """Runs of the same fingerprint."""

    label: str
    runs: tuple[RunResult, ...]
    fingerprint: Fingerprint

    def without(self, other: "StoredSide") -> "StoredSide":
        """A result that is held against a set must not be part of it.

        Raises `InvalidRequest` when nothing is left.
        """
        theirs = {run.run_id for run in other.runs}
        runs = tuple(run for run in self.runs if run.run_id not in theirs)
        if not runs:
            raise InvalidRequest(f"consists of {other.label} alone", param=self.label)
        return dataclasses.replace(self, runs=runs)


def compare_stored(
    left: StoredSide,
    right: StoredSide,
    *,
    margin: float = 0.05,
    allowed: frozenset[str] = frozenset(),
) -> Comparison:
    """`allowed`: parts of the fingerprints that may differ, or `all`.

    Raises `InvalidRequest` when others do, or when both sides have no latency in common.
    """
    unlike = allow_unlike(left, right, allowed)
    counts = len(left.runs), len(right.runs)
    is_repeated = max(counts) >= _FEW_RUNS or min(counts) >= 2
    series = _common_series(left, right)
    values = [(_mean(left, one), _mean(right, one)) for one in series]
    unit = "runs of each side"
    if is_repeated:
        contrasts: list[Contrast | None] = [
            *compare_repeated(_logarithms(left, series), _logarithms(right, series))
        ]
        method = f"{counts[0]} and {counts[1]} runs, compared by how runs differ"
    else:
        pairs = [(_estimate(left.runs[0], one), _estimate(right.runs[0], one)) for one in series]
        contrasts = compare_single(pairs)
        method = "two single runs, compared by what varies within them"
        unit = "runs of that length on each side"
    rows = judge(series, values, contrasts, margin=margin, unit=unit)
    verdict, words = overall(rows, margin, unit)
    reasons = [
        f"{side.label}: {reason}"
        for side in (left, right)
        for run in side.runs
        for reason in run.audit.reasons
    ]
    return Comparison(
        left=_side(left),
        right=_side(right),
        method=method,
        unit=unit,
        margin=margin,
        verdict=verdict,
        words=words,
        is_valid=not reasons,
        reasons=reasons,
        caveats=list(_caveats(left, right, is_repeated)),
        unlike=[str(one) for one in unlike],
        differences=rows,
    )


def allow_unlike(left: StoredSide, right: StoredSide, allowed: frozenset[str]) -> list[Unlike]:
    """The differences between the fingerprints. Raises `InvalidRequest` when one is not allowed.

    What only one side knows is no reason to refuse, but is among them.
    """
    for name in allowed - FINGERPRINT_FIELDS.keys() - {"all"}:
        raise InvalidRequest(f"{name!r} is no part of a fingerprint", param="unlike")
    unlike = unlike_fields(left.fingerprint, right.fingerprint)
    known = [one for one in unlike if one.is_known]
    refused = [one for one in known if one.field not in allowed]
    if refused and "all" not in allowed:
        names = " ".join(f"--unlike {one.field}" for one in refused)
        raise InvalidRequest(
            "these results were measured under unlike conditions: "
            + "; ".join(str(one) for one in refused),
            fix=f"if that is the difference you ask about, say so: {names}",
        )
    return list(unlike)


def _common_series(left: StoredSide, right: StoredSide) -> list[Measure]:
    runs = (*left.runs, *right.runs)
    series = [
        Measure(metric, statistic)
        for metric, statistics in COMPARED
        for statistic in statistics
        if all(run.percentile(metric, float(statistic[1:])) is not None for run in runs)
        and all(_estimate(run, Measure(metric, statistic)).value > 0 for run in runs)
    ]
    is_closed = all(isinstance(run.workload.arrivals, ClosedLoop) for run in runs)
    # An open loop's rate is the one that was asked for.
    if is_closed and max(len(left.runs), len(right.runs)) >= _FEW_RUNS:
        series.append(RATE)
    if not series:
        raise InvalidRequest("the two sides have no latency in common")
    return series


def _estimate(run: RunResult, series: Measure) -> Estimate:
    if series.metric == RATE.metric:
        return Estimate(run.throughput.output_tokens_per_s)
    return run.latencies[series.metric].percentiles[series.statistic]


def _logarithms(side: StoredSide, series: Sequence[Measure]) -> npt.NDArray[np.float64]:
    return np.log([[_estimate(run, one).value for one in series] for run in side.runs])


def _mean(side: StoredSide, series: Measure) -> float:
    """Geometric, as differences are factors."""
    logs = [math.log(_estimate(run, series).value) for run in side.runs]
    return math.exp(sum(logs) / len(logs))


def _side(side: StoredSide) -> Side:
    return Side(
        label=side.label,
        fingerprint=side.fingerprint.digest,
        runs=len(side.runs),
        requests=sum(run.counts.measured for run in side.runs),
    )


def _caveats(left: StoredSide, right: StoredSide, is_repeated: bool) -> Iterable[str]:
    if not is_repeated:
        yield (
            "What differs from run to run does not show in single runs: a difference may be that "
            "of two days. Interleave the two servers live, or store three runs of a side."
        )
    for side in (left, right):
        if any("saturated" in run.audit.labels for run in side.runs):
            yield f"{side.label} was saturated: its latencies grow with the length of the run."
