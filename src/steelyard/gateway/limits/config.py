"""Settings of tenants' limits, resolved. `cli.wiring` fills them in."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Literal

from steelyard.policies.budgets import Limits

__all__ = ["PriorityClass", "RedisConfig", "TenantRules", "TenantsConfig"]

PriorityClass = Literal["high", "normal", "low", "batch"]
"""`batch` is for lines of batches, and for nobody else."""

_CLASS_WIDTH = 2**33
"""More than a request's own priorities, which have 32 bits: no request leaves its class."""

_RANKS: dict[PriorityClass, int] = {"high": -1, "normal": 0, "low": 1, "batch": 2}


@dataclass(frozen=True, slots=True, kw_only=True)
class TenantRules:
    """What one tenant may do. None: as much as everybody."""

    limits: Limits = field(default_factory=Limits)
    max_tokens: int | None = None
    """Of one request."""
    context_tokens: int | None = None
    """Prompt and output of one sequence together."""
    priority_class: PriorityClass = "normal"

    def priority(self, asked: int) -> int:
        """The engine's priority of a request that asks for `asked`; lower goes first."""
        return _RANKS[self.priority_class] * _CLASS_WIDTH + asked


@dataclass(frozen=True, slots=True, kw_only=True)
class RedisConfig:
    """The server through which several processes share budgets."""

    url: str
    password: str | None = field(default=None, repr=False)
    prefix: str = "steelyard"
    timeout_s: float = 0.1
    lease_s: float = 30.0
    """A place held by a process that died is free again after this long."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TenantsConfig:
    """What every tenant may do. A tenant's own rules count before its plan's."""

    default: TenantRules = field(default_factory=TenantRules)
    plans: Mapping[str, TenantRules] = field(default_factory=dict)
    named: Mapping[str, TenantRules] = field(default_factory=dict)
    assumed_tokens: int = 1024
    """Output reserved for a request that does not say how much it wants."""
    redis: RedisConfig | None = None
    """None: every process keeps budgets of its own."""

    def rules(self, tenant: str, plan: str | None) -> TenantRules:
        """Of one tenant."""
        own = self.named.get(tenant)
        if own is None and plan is not None:
            own = self.plans.get(plan)
        return self.default if own is None else own

    def in_class(self, priority_class: PriorityClass) -> "TenantsConfig":
        """The same for everybody, in this class."""

        def moved(rules: TenantRules) -> TenantRules:
            return replace(rules, priority_class=priority_class)

        return replace(
            self,
            default=moved(self.default),
            plans={name: moved(rules) for name, rules in self.plans.items()},
            named={name: moved(rules) for name, rules in self.named.items()},
        )
