"""A transparent HTTP proxy that plants faults of API behaviour into a real server's answers.

`faults` lists what can be planted, `server` passes requests on. For testing tools that claim to
find such faults (`lab.verify`); faults of timing and transport are the mock's own.
"""

from steelyard.lab.mock.proxy.faults import FAULTS, Fault, make_faults
from steelyard.lab.mock.proxy.server import FaultProxy

__all__ = ["FAULTS", "Fault", "FaultProxy", "make_faults"]
