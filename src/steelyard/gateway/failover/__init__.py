"""One engine made of many: routing, retries, and streams that outlive their replica.

`engine` is the whole, a `contract.Engine`; `journey` is one request, `replica_set` everybody who
could serve it; `supervision` judges the replicas by what `watch` sees of them. The decisions
themselves are `policies`.
"""

from steelyard.gateway.failover.config import FailoverConfig
from steelyard.gateway.failover.engine import FailoverEngine
from steelyard.gateway.failover.replica_set import ReplicaSet

__all__ = ["FailoverConfig", "FailoverEngine", "ReplicaSet"]
