"""Where tenants' budgets are kept, as a protocol, and the store of one process.

`redis_store` is the one that processes share, `shared_store` falls back from that to this. The
arithmetic is `policies.budgets`'.
"""

from dataclasses import dataclass
from typing import Protocol

from steelyard.contract import Clock
from steelyard.policies.budgets import Account, Limits, Verdict

__all__ = ["Lease", "LimitStore", "MemoryStore"]

_FEW_ACCOUNTS = 1024


@dataclass(slots=True)
class Lease:
    """What one request holds: a place, and tokens. Given back exactly once, by `close`."""

    tenant: str
    limits: Limits
    """In force when the request began."""
    id: str = ""
    """The shared store's name for it; empty in a process's own store."""
    reserved: int = 0
    """Tokens."""


class LimitStore(Protocol):
    """Budgets by tenant. Used from one event loop."""

    async def open(self, tenant: str, limits: Limits) -> tuple[Verdict, Lease | None]:
        """Take one request and one place; None when a budget is spent."""
        ...

    async def reserve(self, lease: Lease, tokens: int) -> Verdict:
        """Take tokens besides, once per lease. Nothing is taken when the verdict refuses."""
        ...

    def close(self, lease: Lease, used: int) -> None:
        """Give back the place and the reserved tokens beyond `used`. Never waits, never fails."""
        ...

    async def run(self) -> None:
        """The store's own upkeep, until cancelled."""
        ...


class MemoryStore:
    """Budgets of this process alone."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._accounts: dict[str, tuple[Account, Limits]] = {}
        self._sweep_at = _FEW_ACCOUNTS

    @property
    def in_flight(self) -> int:
        """Leases that are open."""
        return sum(account.in_flight for account, _ in self._accounts.values())

    async def open(self, tenant: str, limits: Limits) -> tuple[Verdict, Lease | None]:
        """See `LimitStore.open`."""
        account = self._account(tenant, limits)
        verdict = account.open(limits, self._now_us())
        return verdict, None if verdict.refused_by else Lease(tenant, limits)

    async def reserve(self, lease: Lease, tokens: int) -> Verdict:
        """See `LimitStore.reserve`."""
        assert lease.reserved == 0, "a lease reserves once"
        account = self._account(lease.tenant, lease.limits)
        verdict = account.reserve(lease.limits, tokens, self._now_us())
        if verdict.refused_by is None:
            lease.reserved = tokens
        return verdict

    def close(self, lease: Lease, used: int) -> None:
        """See `LimitStore.close`."""
        account, _ = self._accounts[lease.tenant]
        account.close(lease.limits, self._now_us(), reserved=lease.reserved, used=used)

    async def run(self) -> None:
        """Nothing to do."""

    def _account(self, tenant: str, limits: Limits) -> Account:
        found = self._accounts.get(tenant)
        if found is not None:
            account, former = found
            if former is not limits:
                self._accounts[tenant] = account, limits
            return account
        if len(self._accounts) >= self._sweep_at:
            self._sweep()
        account = Account(limits, self._now_us())
        self._accounts[tenant] = account, limits
        return account

    def _sweep(self) -> None:
        """Forget accounts that are as good as new; seldom, so that its price is spread thin."""
        now_us = self._now_us()
        self._accounts = {
            tenant: (account, limits)
            for tenant, (account, limits) in self._accounts.items()
            if not account.is_fresh(limits, now_us)
        }
        self._sweep_at = max(_FEW_ACCOUNTS, 2 * len(self._accounts))

    def _now_us(self) -> int:
        return int(self._clock.now() * 1e6)
