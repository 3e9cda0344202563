"""The listener for administration: what operators and Prometheus ask, away from the public port.

    /metrics, /health, /readiness    nothing is asked of callers
    /admin/status, /admin/reload     the grant llm:admin, or being this user on a Unix socket

Pages of browsers are refused: whatever they have open could otherwise ask in the operator's name.
The public port is `gateway.app`'s.
"""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any

from steelyard.gateway.auth.guard import Guard
from steelyard.gateway.caller import ANYBODY, Access
from steelyard.gateway.config import GatewayConfig
from steelyard.gateway.errors import http_refusal
from steelyard.gateway.http import Exchange, HttpServer, Route, Router, json_answer
from steelyard.gateway.responding import respond
from steelyard.gateway.routes import About
from steelyard.telemetry.metrics import Metrics

__all__ = ["AdminDoor", "Desk"]

_SETTING = "gateway.admin"


@dataclass(frozen=True, slots=True)
class Desk:
    """What can be asked for under `/admin/`; the answers are JSON."""

    status: Callable[[], Awaitable[dict[str, Any]]]
    reload: Callable[[], Awaitable[dict[str, Any]]]


class AdminDoor:
    """One listener. `guard` is asked anew for each request, because it changes with the settings;
    the config's address is this listener's."""

    def __init__(
        self,
        config: GatewayConfig,
        *,
        about: About,
        desk: Desk,
        guard: Callable[[], Guard],
        metrics: Metrics,
    ) -> None:
        self._guard = guard
        self._asks = config.unix_socket is None
        self._router = _routes(about, desk, has_metrics=config.has_metrics)
        self._server = HttpServer(self._handle, config, metrics, setting=_SETTING)

    @property
    def where(self) -> str:
        """Its address, for people. Valid between `startup` and `shutdown`."""
        return self._server.where

    @property
    def address(self) -> tuple[str, int]:
        """Host and port. Valid between `startup` and `shutdown`, and only without a Unix socket."""
        return self._server.address

    @property
    def routes(self) -> tuple[Route, ...]:
        """All of them."""
        return self._router.routes

    async def startup(self) -> None:
        """Begin to listen. Raises `SettingsError` when the address cannot be had."""
        await self._server.startup()

    async def shutdown(self) -> None:
        """Stop at once: nothing here is worth waiting for. Safe to repeat."""
        hurry = asyncio.Event()
        hurry.set()
        await self._server.stop(hurry)

    async def _handle(self, exchange: Exchange) -> None:
        await respond(exchange, self._answer)

    async def _answer(self, exchange: Exchange) -> None:
        route = self._router.find(exchange)
        if route.access is not Access.OPEN and exchange.header("origin") is not None:
            raise http_refusal(403, "permission_denied", "Web pages may not ask for this.")
        admit = self._guard().admit
        exchange.caller = await admit(exchange, route.access) if self._asks else ANYBODY
        await route.handler(exchange)(exchange)


def _routes(about: About, desk: Desk, *, has_metrics: bool) -> Router:
    async def status(exchange: Exchange) -> None:
        await exchange.send(json_answer(await desk.status()))

    async def reload(exchange: Exchange) -> None:
        await exchange.send(json_answer(await desk.reload()))

    router = Router()
    router.add("GET", "/admin/status", status, Access.ADMIN)
    router.add("POST", "/admin/reload", reload, Access.ADMIN)
    router.add("GET", "/health", about.health, Access.OPEN)
    router.add("GET", "/readiness", about.readiness, Access.OPEN)
    if has_metrics:
        router.add("GET", "/metrics", about.metrics, Access.OPEN)
    return router
