"""Any result in words and tables."""

from steelyard.lab.report.run_tables import run_report
from steelyard.lab.report.series_tables import (
    curve_report,
    repeats_report,
    stress_report,
    sweep_report,
)
from steelyard.lab.report.tables import Report
from steelyard.lab.result import RunResult
from steelyard.lab.series import Curve, Repeats, Stress, Sweep

__all__ = ["report_of"]


def report_of(result: RunResult | Curve | Sweep | Stress | Repeats) -> Report:
    """Of anything that a bench command measures."""
    match result:
        case RunResult():
            return run_report(result)
        case Curve():
            return curve_report(result)
        case Sweep():
            return sweep_report(result)
        case Stress():
            return stress_report(result)
        case Repeats():
            return repeats_report(result)
