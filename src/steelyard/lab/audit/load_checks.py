"""Was the load the one that was asked for: rate, arrival process, concurrency, nothing unsent?"""

import numpy as np
import numpy.typing as npt

from steelyard.lab.audit.evidence import AuditLimits, Check, Evidence
from steelyard.lab.load import OpenLoop
from steelyard.lab.stats import ArrivalTest, in_system, open_loop_test, replay_test

__all__ = [
    "arrival_test",
    "check_arrival_process",
    "check_concurrency",
    "check_random_streams",
    "check_rate",
    "check_schedule",
    "check_unsent",
    "is_saturated",
]

_IMPOSSIBLE_P = 1e-6
_FIXED_TIMES_SHARE = 0.005
"""Of the duration, by which a request with a fixed time may be displaced."""


def arrival_test(evidence: Evidence) -> ArrivalTest | None:
    """Of the delivered arrivals. None for a closed loop, where no times are asked for."""
    arrivals, plan = evidence.workload.arrivals, evidence.plan
    if plan.starts_s is None or plan.duration_s is None:
        return None
    left_s = _left_s(evidence)
    if isinstance(arrivals, OpenLoop):
        return open_loop_test(left_s, arrivals, workers=len(evidence.health))
    return replay_test(left_s, plan.starts_s, plan.duration_s)


def check_rate(evidence: Evidence, limits: AuditLimits, test: ArrivalTest | None) -> Check:
    """Delivered against asked."""
    if test is None or evidence.is_interrupted:
        return _skipped("delivered_rate", evidence)
    off = test.delivered_per_s / test.asked_per_s - 1
    message = f"delivered {test.delivered_per_s:.3f}/s of {test.asked_per_s:.3f}/s ({off:+.1%})"
    # One request that leaves after the end instead of before it is no fault of the rate.
    allowed = max(limits.rate_share, 1.5 / max(test.count, 1))
    values = {"asked_per_s": test.asked_per_s, "delivered_per_s": test.delivered_per_s}
    return Check.judged("delivered_rate", abs(off) <= allowed, message, values)


def check_arrival_process(
    evidence: Evidence, limits: AuditLimits, test: ArrivalTest | None
) -> Check:
    """Distribution of gaps, and of requests over time."""
    if test is None or evidence.is_interrupted:
        return _skipped("arrival_process", evidence)
    values = {"distance": test.ks_distance}
    if test.ks_p is None:
        message = f"requests are off their times by {test.ks_distance:.2%} of the run at most"
        holds = test.ks_distance <= _FIXED_TIMES_SHARE
        return Check.judged("arrival_process", holds, message, values)
    p = min(test.ks_p, 1.0 if test.spread_p is None else test.spread_p)
    values["p"] = p
    message = f"arrivals differ from the asked process by {test.ks_distance:.3f} (p = {p:.2g})"
    return Check.judged("arrival_process", p >= limits.process_p, message, values)


def check_random_streams(evidence: Evidence) -> Check:
    """Gaps that repeat, or arrivals in groups, come from workers that share a random stream.

    Looks at the client's schedule: what delays requests later on has nothing to do with it.
    """
    arrivals = evidence.workload.arrivals
    if not isinstance(arrivals, OpenLoop):
        return _skipped("random_streams", evidence)
    scheduled_s = np.sort(evidence.openings["scheduled_s"])
    test = open_loop_test(scheduled_s, arrivals, workers=len(evidence.health))
    if test.repetition_p is None or test.simultaneous_p is None:
        return _skipped("random_streams", evidence)
    values = {"repetition": test.repetition, "simultaneous": test.simultaneous}
    spoken = ""
    if test.repetition_p < _IMPOSSIBLE_P and test.repetition > 0.3:
        spoken = (
            f"gaps between arrivals repeat after {test.repetition_lag} "
            f"(rank correlation {test.repetition:.2f})"
        )
    elif test.simultaneous_p < _IMPOSSIBLE_P and test.simultaneous > 0.2:
        spoken = f"{test.simultaneous:.0%} of the requests left together with another one"
    if spoken:
        message = f"{spoken}: the client's workers share a random stream"
        return Check.judged("random_streams", False, message, values)
    message = "gaps between arrivals do not depend on each other"
    return Check.judged("random_streams", True, message, values)


def check_schedule(evidence: Evidence) -> Check:
    """Does the client's schedule stand where the plan put it?"""
    starts_s, openings = evidence.plan.starts_s, evidence.openings
    if starts_s is None or not len(openings):
        return _skipped("schedule", evidence)
    sessions = openings["session"]
    off_s = float(np.max(np.abs(openings["scheduled_s"] - starts_s[sessions])))
    values = {"off_s": off_s}
    if off_s <= 0.001:
        message = "requests were scheduled where the plan put them"
        return Check.judged("schedule", True, message, values)
    message = f"requests were scheduled up to {off_s:.3f} s away from where the plan put them"
    return Check.judged("schedule", False, message, values)


def check_unsent(evidence: Evidence) -> Check:
    """Sessions that should have begun and did not."""
    limit, arrivals = evidence.plan.limit, evidence.closed_loop
    if limit is None or evidence.is_interrupted or (arrivals and arrivals.duration_s):
        return _skipped("unsent", evidence)
    begun = len(np.unique(evidence.openings["session"]))
    values = {"planned": float(limit), "begun": float(begun)}
    if begun == limit:
        message = f"all {limit} sessions were begun, each once"
        return Check.judged("unsent", True, message, values)
    message = f"{limit - begun} of {limit} sessions were never begun"
    return Check.judged("unsent", False, message, values)


def check_concurrency(evidence: Evidence, limits: AuditLimits) -> Check:
    """Does a closed loop hold what was asked of it?"""
    closed, cap = evidence.closed_loop, evidence.concurrency_cap
    peak = sum(health.requests_in_flight_peak for health in evidence.health)
    if closed is None:
        message = f"at most {peak} requests were in flight"
        if cap is not None and peak > cap:
            message = f"{peak} requests were in flight where at most {cap} were asked for"
            return Check.judged("concurrency", False, message)
        return Check.judged("concurrency", True, message)
    window = evidence.window
    times_s = np.linspace(window.begin_s, window.end_s, 2001)[:-1]
    mean = float(np.mean(in_system(evidence.records, times_s))) if window.duration_s > 0 else 0.0
    values = {"asked": float(closed.concurrency), "mean": mean, "peak": float(peak)}
    message = f"{mean:.2f} of {closed.concurrency} users were busy on average, {peak} at the peak"
    if peak > closed.concurrency:
        return Check.judged("concurrency", False, message, values)
    is_low = mean < closed.concurrency * (1 - limits.concurrency_share)
    return Check.judged("concurrency", not is_low or _may_pause(evidence), message, values)


def is_saturated(evidence: Evidence) -> bool:
    """Whether requests came faster than they were answered: the number of requests in the system
    kept growing until arrivals stopped. A closed loop never is."""
    plan = evidence.plan
    if plan.starts_s is None or plan.duration_s is None or len(evidence.records) < 10:
        return False
    end_s = min(plan.duration_s, evidence.window.end_s)
    begin_s = min(max(end_s * 0.2, _usual_time_s(evidence)), end_s * 0.5)
    times_s = np.linspace(begin_s, end_s, 200)
    # Beside its own trend, the load's: a ramp fills a server that keeps up with it.
    counts = in_system(evidence.records, times_s).astype(np.float64)
    arrived = np.searchsorted(np.sort(evidence.records.requests["scheduled_s"]), times_s)
    slope = float(np.polyfit(times_s, counts, 1)[0])
    rate = float(arrived[-1] - arrived[0]) / (times_s[-1] - times_s[0])
    grown = float(counts[-40:].mean() - counts[:40].mean())
    is_beyond_chance = grown > max(5.0, 3 * float(np.sqrt(counts[:40].mean() + 1)))
    return slope > 0.04 * rate and is_beyond_chance


def _usual_time_s(evidence: Evidence) -> float:
    """How long answers take, about: until then the server fills, even if it keeps up."""
    requests = evidence.records.requests[evidence.records.is_complete]
    took_s = requests["end_s"] - requests["sent_s"]
    return float(np.percentile(took_s, 90)) if len(took_s) else 0.0


def _left_s(evidence: Evidence) -> npt.NDArray[np.float64]:
    """When sessions left the client; when they were ready to, where a cap was asked for that holds
    them back."""
    openings = evidence.openings
    stamp = "dispatched_s" if evidence.concurrency_cap is not None else "sent_s"
    left_s = np.where(np.isfinite(openings[stamp]), openings[stamp], openings["dispatched_s"])
    return np.sort(left_s)


def _may_pause(evidence: Evidence) -> bool:
    """Users who think, or whose request failed, are not busy."""
    thinks = bool(np.any(evidence.plan.sessions.think_s > 0))
    return thinks or not bool(evidence.records.is_complete.all()) or evidence.is_interrupted


def _skipped(name: str, evidence: Evidence) -> Check:
    why = "the run was interrupted" if evidence.is_interrupted else "nothing of the kind was asked"
    return Check(name=name, status="skip", message=why)
