"""Settings of the failover engine, resolved. `cli.wiring` fills them in."""

from dataclasses import dataclass, field

from steelyard.policies.config import PoliciesConfig

__all__ = ["FailoverConfig"]


@dataclass(frozen=True, slots=True, kw_only=True)
class FailoverConfig:
    """One model on several replicas."""

    policies: PoliciesConfig = field(default_factory=PoliciesConfig)
    tick_s: float = 0.05
    """Between looks at all streams in flight; a stall is noticed up to two ticks late."""
    status_timeout_s: float = 0.3
    """A replica that takes longer to report its status is summed up with its last known one."""
    seed: int = 0
    """Of the choices among replicas that are left to chance, and of the prefix map's keys."""
