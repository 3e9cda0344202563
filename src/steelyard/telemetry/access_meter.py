"""Counts what authentication and tenants' limits do: refusals, keys, the shared store."""

import time

from steelyard.telemetry._instruments import Instruments

__all__ = ["AccessMeter"]


class AccessMeter:
    """Part of `Metrics`; no method blocks."""

    def __init__(self, instruments: Instruments) -> None:
        self._instruments = instruments

    def refused(self, reason: str) -> None:
        """A request was refused for its credentials. `reason` is one of the metric's few."""
        self._instruments.counter("steelyard_auth_refusals_total", reason).add()

    def keys_fetched(self, issuer: str, *, is_ok: bool) -> None:
        """A fetch of the identity provider's keys has ended."""
        outcome = "ok" if is_ok else "failed"
        self._instruments.counter("steelyard_auth_key_fetches_total", outcome).add()
        if is_ok:
            name = "steelyard_auth_keys_fetched_timestamp_seconds"
            self._instruments.gauge(name, issuer).set(time.time())

    def file_read(self, *, is_ok: bool) -> None:
        """A changed file of keys or revoked tokens was read."""
        outcome = "ok" if is_ok else "failed"
        self._instruments.counter("steelyard_auth_file_reads_total", outcome).add()

    def limited(self, tenant: str, resource: str) -> None:
        """A tenant's request was refused because a budget was spent."""
        name = self._instruments.label("tenant", tenant)
        self._instruments.counter("steelyard_tenant_limited_total", name, resource).add()

    def store(self, name: str, *, is_up: bool) -> None:
        """The shared store of budgets answers, or does not."""
        self._instruments.gauge("steelyard_limits_store_up", name).set(float(is_up))

    def store_failed(self, name: str) -> None:
        """The shared store did not answer a question."""
        self._instruments.counter("steelyard_limits_store_errors_total", name).add()
