"""The door as a whole: what happens around every request, its start, its changes and its end.

`cli.wiring` builds the parts that are not ours (engines, text models, metrics) and calls
`build_gateway` and `serve`. Engines are not started or stopped here; that is `fleet`'s work.
"""

import asyncio
import logging
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import dataclass
from typing import Any

from steelyard.contract import Clock, RealClock
from steelyard.gateway.admission import Admission
from steelyard.gateway.auth.building import require_keys
from steelyard.gateway.auth.guard import Guard
from steelyard.gateway.batches.service import BatchService
from steelyard.gateway.cache_salt import CacheSalts
from steelyard.gateway.config import GatewayConfig
from steelyard.gateway.front import Front, Lasting, build_front
from steelyard.gateway.generation.prompts import PromptEncoder
from steelyard.gateway.http import Exchange, HttpServer, Route
from steelyard.gateway.limits.building import build_store
from steelyard.gateway.metrics_page import MetricsPage, OwnMetrics
from steelyard.gateway.models import ModelTable, ServedModel
from steelyard.gateway.responding import respond
from steelyard.gateway.routes import About
from steelyard.gateway.stop_signals import StopSignals
from steelyard.telemetry.metrics import Metrics

__all__ = ["Change", "Gateway", "build_gateway", "serve"]

_log = logging.getLogger(__name__)


def build_gateway(
    config: GatewayConfig,
    models: Sequence[ServedModel],
    metrics: Metrics | None = None,
    clock: Clock | None = None,
    page: MetricsPage | None = None,
) -> "Gateway":
    """A door for `models` (at least one, the first is the default). Call inside a running loop.

    `page` is what `/metrics` shows; None shows `metrics`. Raises `SettingsError` for a file that
    the settings name and that cannot be used.
    """
    clock = clock or RealClock()
    metrics = metrics or Metrics(clock=clock, models=[model.name for model in models])
    table = ModelTable(models)
    page = page or OwnMetrics(table, metrics, clock, config.readiness_timeout_s)
    lasting = Lasting(
        models=table,
        admission=Admission(
            max_in_flight=config.max_in_flight,
            max_queue=config.max_queue,
            queue_timeout_s=config.queue_timeout_s,
            clock=clock,
        ),
        encoder=PromptEncoder(config.requests.inline_prompt_chars),
        salts=CacheSalts(config.cache_secret),
        store=build_store(config.tenants, clock, metrics.access),
        metrics=metrics,
        about=About(table, page, clock, config.readiness_timeout_s),
        batches=None if config.batches is None else BatchService(config.batches, clock),
    )
    return Gateway(config, lasting)


async def serve(gateway: "Gateway", on_ready: Callable[[str, int], None] | None = None) -> None:
    """Serve until SIGTERM or SIGINT, then let running requests finish for the grace period.

    `on_ready` hears host and port. A second signal ends the running requests at once. Raises
    `SettingsError` when the address cannot be had.
    """
    with StopSignals() as signals:
        try:
            await gateway.startup()
            if on_ready is not None:
                on_ready(*gateway.address)
            await signals.first.wait()
        finally:
            await gateway.shutdown(hurry=signals.second)


@dataclass(frozen=True, slots=True)
class Change:
    """Rules that are ready to be followed."""

    config: GatewayConfig
    front: Front


class Gateway:
    """One listening door."""

    def __init__(self, config: GatewayConfig, lasting: Lasting) -> None:
        self._lasting = lasting
        self._front = build_front(config, lasting)
        self._server = HttpServer(self._handle, config, lasting.metrics)
        self._upkeep: asyncio.Task[None] | None = None
        self._guard_upkeep: asyncio.Task[None] | None = None

    @property
    def address(self) -> tuple[str, int]:
        """Host and port listened on. Valid between `startup` and `shutdown`."""
        return self._server.address

    @property
    def about(self) -> About:
        """What the door says about itself, for other listeners."""
        return self._lasting.about

    @property
    def load(self) -> dict[str, int]:
        """Requests at the engine, and requests waiting to be given to it."""
        admission = self._lasting.admission
        return {"in_flight": admission.in_flight, "waiting": admission.waiting}

    @property
    def guard(self) -> Guard:
        """Who lets callers in now."""
        return self._front.guard

    @property
    def routes(self) -> tuple[Route, ...]:
        """All of them."""
        return self._front.router.routes

    async def startup(self) -> None:
        """Begin to listen. Raises `SettingsError` when the address, or the folder of batches,
        cannot be had."""
        self._upkeep = _start(self._lasting.store.run())
        self._guard_upkeep = _start(self._front.guard.run())
        if self._lasting.batches is not None:
            self._lasting.batches.runner.adopt(self._front.lines)
            await self._lasting.batches.startup()
        await self._server.startup()

    async def apply(self, config: GatewayConfig) -> None:
        """Change what can change while the door is open: authentication, limits of tenants,
        requests, connections and queue, CORS, times of streams. Requests that have begun go on
        under the former rules.

        Raises `SettingsError`, and changes nothing, when the new settings cannot work.
        """
        await self.adopt(await self.prepare(config))

    async def prepare(self, config: GatewayConfig) -> "Change":
        """The first half of `apply`, which raises; several doors may then change together."""
        front = build_front(config, self._lasting, self._front)
        await require_keys(front.guard)
        return Change(config, front)

    async def adopt(self, change: "Change") -> None:
        """The second half, which cannot fail."""
        former, self._guard_upkeep = self._guard_upkeep, None
        await _end(former)
        self._front = change.front
        self._server.adopt(change.config)
        if self._lasting.batches is not None:
            self._lasting.batches.runner.adopt(change.front.lines)
        self._lasting.admission.adopt(
            max_queue=change.config.max_queue, queue_timeout_s=change.config.queue_timeout_s
        )
        self._guard_upkeep = _start(change.front.guard.run())

    async def shutdown(self, hurry: asyncio.Event | None = None) -> None:
        """Stop listening; running requests may finish within the grace period.

        Setting `hurry` ends the grace period. Safe to repeat.
        """
        if self._lasting.batches is not None:
            await self._lasting.batches.stop_lines()  # they can wait; people cannot
        await self._server.stop(hurry or asyncio.Event())
        if self._lasting.batches is not None:
            await self._lasting.batches.shutdown()
        await _end(self._guard_upkeep)
        await _end(self._upkeep)
        self._lasting.encoder.close()

    async def _handle(self, exchange: Exchange) -> None:
        await respond(exchange, self._front.answer)


def _start(upkeep: Coroutine[Any, Any, None]) -> "asyncio.Task[None]":
    task = asyncio.create_task(upkeep)
    task.add_done_callback(_note_end)
    return task


def _note_end(task: "asyncio.Task[None]") -> None:
    if not task.cancelled() and (error := task.exception()) is not None:
        _log.error("upkeep has ended", exc_info=error)


async def _end(task: "asyncio.Task[None] | None") -> None:
    if task is not None:
        task.cancel()
        await asyncio.wait((task,))
