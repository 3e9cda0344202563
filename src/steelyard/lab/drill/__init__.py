"""Failures on purpose: streams of a service while something happens to it, and what they saw.

Measures from outside, as clients do. Who does the thing is told to `run_drill` as a callable; the
orders themselves are `fleet`'s.
"""

from steelyard.lab.drill.report import DrillReport
from steelyard.lab.drill.running import Drill, run_drill
from steelyard.lab.drill.streams import DrillStream, begin_streams

__all__ = ["Drill", "DrillReport", "DrillStream", "begin_streams", "run_drill"]
