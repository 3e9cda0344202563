"""Is the client itself sound: on time, with a processor, connections and a steady clock?"""

import numpy as np

from steelyard.lab.audit.evidence import AuditLimits, Check, Evidence
from steelyard.lab.outcomes import Outcome, RequestFlag

__all__ = [
    "check_clock",
    "check_connections",
    "check_cpu",
    "check_dispatch_lag",
    "check_late_start",
    "check_loop_lag",
]

_PERCENTILES = (50, 90, 99)
_SLEW = 500e-6


def check_clock(evidence: Evidence, limits: AuditLimits) -> Check:
    """A jump of the wall clock breaks every comparison with the server's log."""
    worst = max(evidence.health, key=lambda health: abs(health.clock_drift_s))
    limit_s = limits.clock_ms / 1000 + _SLEW * worst.wall_s
    drift_s = worst.clock_drift_s
    values = {"drift_s": drift_s, "limit_s": limit_s}
    if abs(drift_s) <= limit_s:
        return Check.judged("clock", True, "clocks ran alike", values)
    message = f"the wall clock jumped by {drift_s:+.3f} s against the monotonic clock"
    return Check.judged("clock", False, message, values)


def check_late_start(evidence: Evidence, limits: AuditLimits) -> Check:
    """Did every client process begin when it should have?"""
    late_s, worker = max(
        ((_first_lag_s(evidence, health.worker), health.worker) for health in evidence.health),
        default=(0.0, 0),
    )
    lag_s = float(np.percentile(_loop_lags_s(evidence), 99))
    values = {"late_s": late_s, "loop_lag_p99_s": lag_s}
    # A loop that is itself that late explains it better.
    if late_s <= max(limits.late_start_ms / 1000, 4 * lag_s):
        return Check.judged("late_start", True, "began on time", values)
    message = f"client process {worker} began {late_s:.2f} s after its first request was due"
    return Check.judged("late_start", False, message, values)


def check_loop_lag(evidence: Evidence, limits: AuditLimits) -> Check:
    """Tokens are stamped as late as the event loop is."""
    lags_s = _loop_lags_s(evidence)
    p50_s, p99_s = (float(value) for value in np.percentile(lags_s, [50, 99]))
    values = {"p50_s": p50_s, "p99_s": p99_s, "max_s": float(lags_s.max())}
    spoken = f"the client's event loop was late by {p99_s * 1e3:.1f} ms (p99)"
    if p99_s <= limits.loop_lag_ms / 1000:
        return Check.judged("loop_lag", True, spoken, values)
    busiest = max(evidence.health, key=lambda health: health.cpu_share)
    if busiest.cpu_share >= 0.5:
        spoken += f": it is too slow, and used {busiest.cpu_share:.0%} of a processor"
    else:
        spoken += (
            f": other programs kept the processor from it, which it used for "
            f"{busiest.cpu_share:.0%} of the time"
        )
    return Check.judged("loop_lag", False, spoken, values)


def check_cpu(evidence: Evidence, limits: AuditLimits) -> Check:
    """A client without reserve delays what it measures."""
    busiest = max(evidence.health, key=lambda health: health.cpu_share)
    events = sum(health.token_events for health in evidence.health)
    cpu_s = sum(health.cpu_s for health in evidence.health)
    values = {"share": busiest.cpu_share, "us_per_event": cpu_s / max(events, 1) * 1e6}
    message = f"the busiest client process used {busiest.cpu_share:.0%} of a processor"
    if busiest.cpu_share <= limits.cpu_share:
        return Check.judged("client_cpu", True, message, values)
    message += "; give the run more of them (--workers)"
    return Check.judged("client_cpu", False, message, values)


def check_dispatch_lag(evidence: Evidence, limits: AuditLimits) -> Check:
    """What would the latencies be if the client had turned to each request on time?"""
    requests = evidence.records.requests
    measured = evidence.records.is_complete & evidence.window.holds(requests["scheduled_s"])
    chosen = requests[measured & ~evidence.records.flagged(RequestFlag.WARM_UP)]
    if not len(chosen):
        return Check(name="dispatch_lag", status="skip", message="no request to check")
    lag_s = chosen["dispatched_s"] - chosen["scheduled_s"]
    first_s = np.where(
        np.isfinite(chosen["first_token_s"]), chosen["first_token_s"], chosen["end_s"]
    )
    latency_s = first_s - chosen["scheduled_s"]
    asked = np.percentile(latency_s, _PERCENTILES)
    on_time = np.percentile(latency_s - lag_s, _PERCENTILES)
    added_s = asked - on_time
    allowed_s = np.maximum(limits.distortion_ms / 1000, limits.distortion_share * on_time)
    worst = int(np.argmax(added_s / allowed_s))
    values = {
        "lag_p50_s": float(np.percentile(lag_s, 50)),
        "lag_p99_s": float(np.percentile(lag_s, 99)),
        "added_s": float(added_s[worst]),
        "allowed_s": float(allowed_s[worst]),
    }
    message = (
        f"the client's own delay adds {added_s[worst] * 1e3:.2f} ms to "
        f"the p{_PERCENTILES[worst]} of the time to the first token"
    )
    holds = bool(added_s[worst] <= allowed_s[worst])
    return Check.judged("dispatch_lag", holds, message, values)


def check_connections(evidence: Evidence, limits: AuditLimits) -> Check:
    """Did requests wait in the client although nobody asked them to?"""
    requests = evidence.records.requests
    if np.any(requests["outcome"] == Outcome.CLIENT_FAILED):
        failed = int(np.sum(requests["outcome"] == Outcome.CLIENT_FAILED))
        message = f"the client could not open connections for {failed} requests"
        return Check.judged("connections", False, message)
    was_sent = np.isfinite(requests["sent_s"])
    reused = was_sent & ~evidence.records.flagged(RequestFlag.NEW_CONNECTION)
    waits_s = (requests["sent_s"] - requests["released_s"])[reused]
    busy = sum(health.busy_connections_peak for health in evidence.health)
    in_flight = sum(health.requests_in_flight_peak for health in evidence.health)
    wait_s = float(np.percentile(waits_s, 99)) if len(waits_s) else 0.0
    values = {"wait_p99_s": wait_s, "busy_peak": float(busy), "in_flight_peak": float(in_flight)}
    if wait_s <= limits.connection_wait_ms / 1000:
        message = f"no request waited for a connection; {busy} were busy at the peak"
        return Check.judged("connections", True, message, values)
    message = (
        f"requests waited up to {float(waits_s.max()):.2f} s for one of {busy} connections: "
        f"the client has a hidden cap ({in_flight} requests were due at the peak)"
    )
    return Check.judged("connections", False, message, values)


def _first_lag_s(evidence: Evidence, worker: int) -> float:
    """How late the worker's earliest request was taken up; negative never."""
    requests = evidence.records.requests
    own = requests[requests["worker"] == worker]
    if not len(own):
        return 0.0
    first = own[np.argmin(own["scheduled_s"])]
    due_s = float(first["scheduled_s"])
    if evidence.closed_loop is not None:
        due_s = 0.0 if evidence.closed_loop.ramp_s == 0 else due_s
    elif evidence.plan.starts_s is not None and int(first["turn"]) == 0:
        due_s = min(due_s, float(evidence.plan.starts_s[int(first["session"])]))
    return max(float(first["dispatched_s"]) - due_s, 0.0)


def _loop_lags_s(evidence: Evidence) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
    lags_s = np.concatenate([np.asarray(health.loop_lags_s) for health in evidence.health])
    return lags_s if len(lags_s) else np.zeros(1)
