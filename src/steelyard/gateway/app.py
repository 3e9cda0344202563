"""The door as a whole: its routes, what happens around every request, its start and its end.

`cli.wiring` builds the parts that are not ours (engines, text models, metrics) and calls
`build_gateway` and `serve`. Engines are not started or stopped here; that is `fleet`'s work.
"""

import asyncio
import logging
from collections.abc import Callable, Sequence

from steelyard.contract import Clock, RealClock
from steelyard.contract.errors import SteelyardError
from steelyard.gateway.admission import Admission
from steelyard.gateway.cache_salt import CacheSalts
from steelyard.gateway.config import GatewayConfig
from steelyard.gateway.cors import Cors
from steelyard.gateway.errors import Refusal, explain
from steelyard.gateway.generation.chat_dialect import ChatDialect
from steelyard.gateway.generation.completion_dialect import CompletionDialect
from steelyard.gateway.generation.endpoint import GenerationEndpoint, Surroundings
from steelyard.gateway.generation.prompts import PromptEncoder
from steelyard.gateway.http import Exchange, HttpServer, Router
from steelyard.gateway.models import ModelTable, ServedModel
from steelyard.gateway.request_id import request_id
from steelyard.gateway.routes import About, Tokens
from steelyard.gateway.stop_signals import StopSignals
from steelyard.telemetry.metrics import Metrics

__all__ = ["Gateway", "build_gateway", "serve"]

_log = logging.getLogger(__name__)


def build_gateway(
    config: GatewayConfig,
    models: Sequence[ServedModel],
    metrics: Metrics | None = None,
    clock: Clock | None = None,
) -> "Gateway":
    """A door for `models` (at least one, the first is the default). Call inside a running loop."""
    clock = clock or RealClock()
    metrics = metrics or Metrics(clock=clock, models=[model.name for model in models])
    table = ModelTable(models)
    surroundings = Surroundings(
        config=config,
        models=table,
        admission=Admission(
            max_in_flight=config.max_in_flight,
            max_queue=config.max_queue,
            queue_timeout_s=config.queue_timeout_s,
            clock=clock,
        ),
        encoder=PromptEncoder(config.requests.inline_prompt_chars),
        salts=CacheSalts(config.cache_secret),
        metrics=metrics,
    )
    about = About(table, metrics, clock, config.readiness_timeout_s)
    return Gateway(surroundings, about)


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


class Gateway:
    """One listening door."""

    def __init__(self, surroundings: Surroundings, about: About) -> None:
        self._around = surroundings
        self._cors = Cors(surroundings.config.cors_origins)
        self._router = _routes(surroundings, about)
        self._server = HttpServer(self._handle, surroundings.config, surroundings.metrics)

    @property
    def address(self) -> tuple[str, int]:
        """Host and port listened on. Valid between `startup` and `shutdown`."""
        return self._server.address

    @property
    def routes(self) -> tuple[str, ...]:
        """Templates of all routes, for the documentation."""
        return self._router.templates

    async def startup(self) -> None:
        """Begin to listen. Raises `SettingsError` when the address cannot be had."""
        await self._server.startup()

    async def shutdown(self, hurry: asyncio.Event | None = None) -> None:
        """Stop listening; running requests may finish within the grace period.

        Setting `hurry` ends the grace period. Safe to repeat.
        """
        await self._server.stop(hurry or asyncio.Event())
        self._around.encoder.close()

    async def _handle(self, exchange: Exchange) -> None:
        """What happens around every request, in order."""
        exchange.name(request_id(exchange.header("x-request-id")))
        self._cors.allow(exchange)
        try:
            if self._cors.is_preflight(exchange):
                await self._cors.answer_preflight(exchange)
                return
            handler = self._router.find(exchange)
            await handler(exchange)
        except Refusal as refusal:
            await exchange.refuse(refusal)
        except SteelyardError as error:
            await self._refuse(exchange, error)

    async def _refuse(self, exchange: Exchange, error: SteelyardError) -> None:
        refusal = explain(error)
        if refusal.status >= 500:
            _log.warning("request %s: %s: %s", exchange.request_id, error.code, error)
        await exchange.refuse(refusal)


def _routes(surroundings: Surroundings, about: About) -> Router:
    limits = surroundings.config.requests
    tokens = Tokens(surroundings.models, surroundings.encoder, limits.max_field_bytes)
    router = Router()
    router.add(
        "POST", "/v1/chat/completions", GenerationEndpoint(ChatDialect(limits), surroundings)
    )
    router.add(
        "POST", "/v1/completions", GenerationEndpoint(CompletionDialect(limits), surroundings)
    )
    router.add("POST", "/tokenize", tokens.tokenize)
    router.add("POST", "/detokenize", tokens.detokenize)
    router.add("GET", "/v1/models", about.models)
    router.add("GET", "/v1/models/*", about.model)
    router.add("GET", "/health", about.health)
    router.add("GET", "/readiness", about.readiness)
    router.add("GET", "/metrics", about.metrics)
    router.add("GET", "/version", about.version)
    router.add("GET", "/", about.root)
    return router
