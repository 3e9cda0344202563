"""Asks every question and decides whether a run may be believed.

A fault of the client breaks several checks at once: a client that begins late also delivers the
wrong rate. `reasons` names the cause and leaves out what follows from it.
"""

from steelyard.lab.audit import answer_checks, client_checks, load_checks
from steelyard.lab.audit.evidence import Audit, AuditLimits, Check, Evidence

__all__ = ["audit"]

_CONSEQUENCES: dict[str, tuple[str, ...]] = {
    "random_streams": ("schedule", "arrival_process", "delivered_rate"),
    "late_start": ("schedule", "arrival_process", "delivered_rate", "dispatch_lag"),
    "connections": ("arrival_process", "delivered_rate"),
    "loop_lag": (
        "client_cpu",
        "dispatch_lag",
        "arrival_process",
        "delivered_rate",
        "connections",
    ),
    "client_cpu": ("dispatch_lag", "arrival_process", "delivered_rate"),
    "schedule": ("arrival_process", "delivered_rate"),
    "dispatch_lag": ("arrival_process",),
}
"""What else fails when a check fails, in the order in which causes are looked for."""


_DEFAULT_LIMITS = AuditLimits()


def audit(evidence: Evidence, limits: AuditLimits = _DEFAULT_LIMITS) -> Audit:
    """Judge a finished run."""
    checks = _checks(evidence, limits)
    failed = {check.name: check for check in checks if check.status == "fail"}
    explained: set[str] = set()
    for cause, consequences in _CONSEQUENCES.items():
        if cause in failed and cause not in explained:
            explained.update(consequences)
    labels = []
    if evidence.is_interrupted:
        labels.append("interrupted")
    if load_checks.is_saturated(evidence):
        labels.append("saturated")
    return Audit(
        is_valid=not failed,
        reasons=[check.message for name, check in failed.items() if name not in explained],
        labels=labels,
        checks=checks,
    )


def _checks(evidence: Evidence, limits: AuditLimits) -> list[Check]:
    if not len(evidence.records):
        nothing = "no request was sent"
        return [Check(name="failures", status="fail", message=nothing)]
    test = load_checks.arrival_test(evidence)
    return [
        client_checks.check_clock(evidence, limits),
        load_checks.check_random_streams(evidence),
        client_checks.check_late_start(evidence, limits),
        client_checks.check_loop_lag(evidence, limits),
        client_checks.check_cpu(evidence, limits),
        client_checks.check_connections(evidence, limits),
        load_checks.check_schedule(evidence),
        client_checks.check_dispatch_lag(evidence, limits),
        load_checks.check_rate(evidence, limits, test),
        load_checks.check_arrival_process(evidence, limits, test),
        load_checks.check_unsent(evidence),
        load_checks.check_concurrency(evidence, limits),
        answer_checks.check_failures(evidence, limits),
        answer_checks.check_tokens(evidence, limits),
        answer_checks.check_cache(evidence),
        answer_checks.check_steady_state(evidence),
        answer_checks.check_sample(evidence),
    ]
