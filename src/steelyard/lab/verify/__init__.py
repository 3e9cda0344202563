"""Functional acceptance of any OpenAI-compatible server: what it offers is put to the test.

    target      which server, how hard          checks/    one module per area of claims
    offer       what it offers                  probe      what a check works with
    runner      runs the checks                 compare    two servers, token by token
    report      JSON, JUnit XML                 ties       differences that rounding explains

Judges answers, not speed (that is `lab.load`), and knows servers by their URL alone.
"""

from steelyard.lab.verify.check import select
from steelyard.lab.verify.findings import Finding, Status
from steelyard.lab.verify.report import Report, TargetReport, junit_xml, to_json
from steelyard.lab.verify.session import Watcher, all_claims, verify
from steelyard.lab.verify.target import Target, VerifyConfig, read_target

__all__ = [
    "Finding",
    "Report",
    "Status",
    "Target",
    "TargetReport",
    "VerifyConfig",
    "Watcher",
    "all_claims",
    "junit_xml",
    "read_target",
    "select",
    "to_json",
    "verify",
]
