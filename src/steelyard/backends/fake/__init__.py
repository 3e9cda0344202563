"""An engine without a model: exact tokens, chosen latencies, faults on demand.

A product, not a test helper: `backend: fake` serves it, and load generators, routers and failover
paths are measured against it. `engine` holds the engine, `faults` what can go wrong, `tokens`
which token comes at which place, `slots` who runs and who waits.
"""

from steelyard.backends.fake.engine import FakeEngine, FakeEngineConfig
from steelyard.backends.fake.faults import Fault, FaultKind

__all__ = ["FakeEngine", "FakeEngineConfig", "Fault", "FaultKind"]
