"""Finds the part of a run that is measured: after its beginning has settled, before it drains.

The beginning is read off the data by MSER-5 (`stats.steady`) on the time to first token and on the
time per token of requests in the order of their scheduled times; in addition the first answers must
have ended, because until then the server is emptier than later. Where nothing settles, as under
overload, the whole run is measured.
"""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from steelyard.lab.load import ClosedLoop, Plan
from steelyard.lab.outcomes import Outcome
from steelyard.lab.records import Records
from steelyard.lab.stats import RequestLatencies, Window, mser, request_latencies

__all__ = ["MeasuredWindow", "find_window"]

_MOST_FILLING = 0.25
"""Of the run, that may be left out because the server was still filling up."""
_FEWEST_ANSWERS = 20


@dataclass(frozen=True, slots=True)
class MeasuredWindow:
    """What `find_window` found."""

    window: Window
    is_settled: bool
    warm_up: str
    """For people: how the beginning was found."""


def find_window(records: Records, plan: Plan, warm_up_s: float | None = None) -> MeasuredWindow:
    """`warm_up_s`: leave out so much. None: find it."""
    end_s = _load_end_s(records, plan)
    if warm_up_s is not None:
        begin_s = min(warm_up_s, end_s)
        return MeasuredWindow(Window(begin_s, end_s), True, f"the first {warm_up_s:g} s left out")
    answers = request_latencies(records, Window(0.0, end_s))
    if len(answers.rows) < _FEWEST_ANSWERS:
        return MeasuredWindow(Window(0.0, end_s), False, "too few answers to find one")
    settled_s = _settled_s(records, answers)
    if settled_s is None:
        return MeasuredWindow(Window(0.0, end_s), False, "MSER-5 found no steady state")
    begin_s = max(settled_s, _filled_s(records, plan, answers, end_s))
    return MeasuredWindow(Window(begin_s, end_s), True, "MSER-5")


def _load_end_s(records: Records, plan: Plan) -> float:
    """When the load ended: by plan, by its last request, or because somebody stopped it."""
    requests = records.requests
    if not len(requests):
        return plan.duration_s or 0.0
    last_s = float(requests["scheduled_s"].max())
    end_s = float(np.nextafter(last_s, np.inf)) if plan.duration_s is None else plan.duration_s
    abandoned = requests["outcome"] == Outcome.ABANDONED
    if abandoned.any():
        end_s = min(end_s, float(requests["end_s"][abandoned].min()))
    return end_s


def _settled_s(records: Records, answers: RequestLatencies) -> float | None:
    """When the latest of the series has settled; None when one never does."""
    scheduled_s = records.requests["scheduled_s"][answers.rows]
    begins_s = [0.0]
    for series in (answers.ttft_s, answers.tpot_s):
        is_known = np.isfinite(series)
        if np.sum(is_known) < _FEWEST_ANSWERS:
            continue
        found = mser(series[is_known])
        if not found.is_settled:
            return None
        begins_s.append(_time_of(found.cut, scheduled_s[is_known]))
    return max(begins_s)


def _filled_s(records: Records, plan: Plan, answers: RequestLatencies, end_s: float) -> float:
    """When as many requests are in the server as later on, by the time answers take."""
    took_s = answers.e2e_sent_s
    if isinstance(plan.arrivals, ClosedLoop):
        first = took_s[: plan.arrivals.concurrency]
        filling_s = plan.arrivals.ramp_s + float(np.median(first))
    else:
        filling_s = float(np.percentile(took_s, 90))
    return min(filling_s, _MOST_FILLING * end_s)


def _time_of(index: int, scheduled_s: npt.NDArray[np.float64]) -> float:
    return 0.0 if index == 0 else float(scheduled_s[min(index, len(scheduled_s) - 1)])
