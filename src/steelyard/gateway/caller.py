"""Who asks, and what they may do: data that authentication fills in and everything after reads.

How a caller was recognised is the business of `gateway.auth`; how much one may use, of
`gateway.limits`.
"""

import enum
import re
from collections.abc import Collection
from dataclasses import dataclass

from steelyard.contract.errors import Forbidden

__all__ = ["ANYBODY", "DEFAULT_TENANT", "NOBODY", "Access", "Caller", "caller_of", "is_tenant_name"]

DEFAULT_TENANT = "default"
"""Everybody, as long as nobody is asked for credentials."""

_TENANT = re.compile(r"[!-~]{1,128}")


class Access(enum.Enum):
    """What a route asks of its callers."""

    OPEN = "open"
    """Nothing."""
    KNOWN = "known"
    """Valid credentials."""
    INFER = "llm:infer"
    ADMIN = "llm:admin"


@dataclass(frozen=True, slots=True)
class Caller:
    """The holder of some credentials."""

    tenant: str
    plan: str | None = None
    """Names limits for those tenants that have none of their own; None: no plan."""
    grants: frozenset[Access] = frozenset()
    models: frozenset[str] | None = None
    """Names of models that may be used; None: all."""

    def may(self, access: Access) -> bool:
        """True when the caller may use routes that ask for `access`."""
        return access in self.grants

    def may_use(self, model: str) -> bool:
        """True when the model may be used, or even seen."""
        return self.models is None or model in self.models

    def require_model(self, model: str) -> None:
        """Raise `Forbidden` unless the model may be used."""
        if not self.may_use(model):
            raise Forbidden(
                f"these credentials do not allow the model {model}",
                param="model",
                fix=f"They would need the grant model:{model}.",
            )


ANYBODY = Caller(DEFAULT_TENANT, grants=frozenset(Access))
"""Whoever comes to a door that asks nobody for credentials."""

NOBODY = Caller(DEFAULT_TENANT, grants=frozenset({Access.OPEN}))
"""Somebody who was not asked, on a route that needs nothing."""


def caller_of(
    tenant: str, plan: str | None, scopes: Collection[str], *, require_model_grant: bool
) -> Caller:
    """The caller that scopes (`llm:infer`, `llm:admin`, `model:<name>`) describe; others are
    ignored, as they are meant for other services."""
    grants = {Access.OPEN, Access.KNOWN}
    grants.update(access for access in (Access.INFER, Access.ADMIN) if access.value in scopes)
    prefix = "model:"
    models = {scope.removeprefix(prefix) for scope in scopes if scope.startswith(prefix)}
    if "*" in models or not (models or require_model_grant):
        return Caller(tenant, plan, frozenset(grants))
    return Caller(tenant, plan, frozenset(grants), frozenset(models))


def is_tenant_name(text: str) -> bool:
    """True for what can name a tenant in logs, metrics and budgets."""
    return _TENANT.fullmatch(text) is not None
