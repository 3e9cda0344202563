"""The doors of a service in one process: the public one, the one for administration, and the
reading of new settings.

A door in several processes is `workers`' business; both are driven by `service`.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import replace
from typing import Any, Protocol

from steelyard import __version__
from steelyard.cli.door import gateway_config
from steelyard.cli.reloading import Origin, Reloader
from steelyard.gateway.admin import AdminDoor, Desk
from steelyard.gateway.app import Gateway
from steelyard.gateway.auth.guard import Guard
from steelyard.gateway.config import GatewayConfig
from steelyard.gateway.routes import About
from steelyard.settings import Deployment, Resolved
from steelyard.settings.paths import expanded
from steelyard.telemetry import Metrics, configure_logging

__all__ = ["Doors", "LocalDoors", "admin_config", "make_admin", "make_desk"]


class Doors(Protocol):
    """What clients and operators come to."""

    @property
    def address(self) -> tuple[str, int]:
        """Of the public one. Valid between `startup` and `shutdown`."""
        ...

    @property
    def pids(self) -> Mapping[str, int]:
        """Of processes besides this one, by name, that are there now."""
        ...

    @property
    def on_hangup(self) -> Callable[[], None] | None:
        """What SIGHUP does; None: it ends the service."""
        ...

    async def startup(self) -> None:
        """Open. Raises `SettingsError` when an address cannot be had."""
        ...

    async def settle(self) -> None:
        """Return once requests reach the engines, which are ready."""
        ...

    async def shutdown(self, hurry: asyncio.Event) -> None:
        """Close; running requests may finish within the grace period, which `hurry` ends."""
        ...


class LocalDoors:
    """`Doors` in this process."""

    def __init__(
        self, resolved: Resolved, gateway: Gateway, metrics: Metrics, origin: Origin | None
    ) -> None:
        """`origin` None: the settings are not read again."""
        self._gateway = gateway
        self._reloader = None
        if origin is not None and origin.file is not None:
            self._reloader = Reloader(resolved, origin, apply=self._apply, meter=metrics.service)
        self._admin = make_admin(
            resolved.deployment,
            about=gateway.about,
            desk=make_desk(resolved.deployment, self._reloader, self._figures),
            guard=lambda: gateway.guard,
            metrics=metrics,
        )
        self._reloading: asyncio.Task[None] | None = None
        metrics.service.workers(1)

    @property
    def address(self) -> tuple[str, int]:
        """See `Doors.address`."""
        return self._gateway.address

    @property
    def pids(self) -> Mapping[str, int]:
        """See `Doors.pids`."""
        return {}

    @property
    def on_hangup(self) -> Callable[[], None] | None:
        """See `Doors.on_hangup`."""
        return None if self._reloader is None else self._reloader.ring

    async def startup(self) -> None:
        """See `Doors.startup`."""
        if self._admin is not None:
            await self._admin.startup()
        await self._gateway.startup()
        if self._reloader is not None:
            self._reloading = asyncio.create_task(self._reloader.run())

    async def settle(self) -> None:
        """See `Doors.settle`: there is nothing between them and this process."""

    async def shutdown(self, hurry: asyncio.Event) -> None:
        """See `Doors.shutdown`."""
        if self._reloading is not None:
            self._reloading.cancel()
            await asyncio.wait((self._reloading,))
        await self._gateway.shutdown(hurry)
        if self._admin is not None:
            await self._admin.shutdown()

    async def _apply(self, deployment: Deployment) -> None:
        await self._gateway.apply(gateway_config(deployment))
        log = deployment.telemetry.log
        configure_logging(log.format, log.level)

    async def _figures(self) -> dict[str, Any]:
        return {"workers": 1, **self._gateway.load}


def make_admin(
    deployment: Deployment,
    *,
    about: About,
    desk: Desk,
    guard: Callable[[], Guard],
    metrics: Metrics,
) -> AdminDoor | None:
    """The listener for administration; None when the settings name none."""
    config = admin_config(deployment)
    if config is None:
        return None
    return AdminDoor(config, about=about, desk=desk, guard=guard, metrics=metrics)


def admin_config(deployment: Deployment) -> GatewayConfig | None:
    """As `gateway_config`, of the listener for administration."""
    gateway = deployment.gateway
    if gateway.admin.port is None and gateway.admin.socket is None:
        return None
    socket = None if gateway.admin.socket is None else str(expanded(gateway.admin.socket))
    return replace(
        gateway_config(deployment),
        host=gateway.admin.host,
        port=gateway.admin.port or 0,
        unix_socket=socket,
        has_metrics=gateway.metrics != "door",
    )


def make_desk(
    deployment: Deployment,
    reloader: Reloader | None,
    figures: Callable[[], Awaitable[dict[str, Any]]],
) -> Desk:
    """What operators may ask and order."""
    started_s = time.monotonic()

    async def status() -> dict[str, Any]:
        last = None if reloader is None else reloader.last
        return {
            "version": __version__,
            "model": deployment.served_as,
            "uptime_s": round(time.monotonic() - started_s, 1),
            **await figures(),
            "reload": None if last is None else last.as_json(),
        }

    async def reload() -> dict[str, Any]:
        if reloader is None:
            return {"outcome": "refused", "error": "there is no deployment file to read again"}
        return (await reloader.reload()).as_json()

    return Desk(status, reload)
