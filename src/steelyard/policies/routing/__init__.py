"""Which replica a request is given to.

`target` keeps what a replica is doing and predicts, `work` who has had more than a fair share,
`pool` holds the targets that may be chosen, `least_ttft` and `simple` choose, `affinity` keeps
sessions where they were.
"""

from steelyard.policies.routing.affinity import SessionAffinity
from steelyard.policies.routing.least_ttft import LeastTtft
from steelyard.policies.routing.pool import Pool
from steelyard.policies.routing.registry import make_routing
from steelyard.policies.routing.simple import LeastLoaded, RoundRobin
from steelyard.policies.routing.target import Load, Target
from steelyard.policies.routing.trip import RoutingPolicy, Trip

__all__ = [
    "LeastLoaded",
    "LeastTtft",
    "Load",
    "Pool",
    "RoundRobin",
    "RoutingPolicy",
    "SessionAffinity",
    "Target",
    "Trip",
    "make_routing",
]
