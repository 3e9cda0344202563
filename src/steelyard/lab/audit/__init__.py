"""Every run audits itself: a measurement that cannot be trusted says so, and why.

`client_checks` look at the client, `load_checks` at what was sent, `answer_checks` at what came
back; `verdict` puts them together.
"""

from steelyard.lab.audit.evidence import Audit, AuditLimits, Check, Evidence
from steelyard.lab.audit.verdict import audit

__all__ = ["Audit", "AuditLimits", "Check", "Evidence", "audit"]
