"""The rules that requests meet: who is let in, what exists, what may be asked for.

Everything here follows from settings that may change while the door is open. A change replaces
the whole front at once, so no request meets half of it; what outlives a change (queue, budgets,
connections, engines) belongs to `gateway.app` and is only referred to.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace

from steelyard.gateway.admission import Admission
from steelyard.gateway.auth.building import build_guard
from steelyard.gateway.auth.guard import Guard
from steelyard.gateway.batches.lines import CHAT, TEXT
from steelyard.gateway.batches.routes import add_batch_routes
from steelyard.gateway.batches.runner import LineHandler
from steelyard.gateway.batches.service import BatchService
from steelyard.gateway.cache_salt import CacheSalts
from steelyard.gateway.caller import Access
from steelyard.gateway.config import GatewayConfig
from steelyard.gateway.cors import Cors
from steelyard.gateway.generation.chat_dialect import ChatDialect
from steelyard.gateway.generation.completion_dialect import CompletionDialect
from steelyard.gateway.generation.endpoint import GenerationEndpoint, Surroundings
from steelyard.gateway.generation.prompts import PromptEncoder
from steelyard.gateway.http import Exchange, Router
from steelyard.gateway.limits.limiter import Limiter
from steelyard.gateway.limits.store import LimitStore
from steelyard.gateway.models import ModelTable
from steelyard.gateway.routes import About, Tokens, refuse_embeddings
from steelyard.telemetry.metrics import Metrics

__all__ = ["Front", "Lasting", "build_front"]


@dataclass(frozen=True, slots=True)
class Lasting:
    """What a door keeps as long as it is open."""

    models: ModelTable
    admission: Admission
    encoder: PromptEncoder
    salts: CacheSalts
    store: LimitStore
    metrics: Metrics
    about: About
    batches: BatchService | None
    """None: switched off."""


@dataclass(frozen=True, slots=True)
class Front:
    """One set of rules."""

    guard: Guard
    cors: Cors
    router: Router
    lines: Mapping[str, LineHandler]
    """What answers lines of batches, by their url."""

    async def answer(self, exchange: Exchange) -> None:
        """Find the route, let the caller in, and let the handler answer.

        Raises `Refusal` and errors of the tree.
        """
        self.cors.allow(exchange)
        if self.cors.is_preflight(exchange):
            await self.cors.answer_preflight(exchange)
            return
        route = self.router.find(exchange)
        exchange.caller = await self.guard.admit(exchange, route.access)
        await route.handler(exchange)(exchange)


def build_front(config: GatewayConfig, lasting: Lasting, former: Front | None = None) -> Front:
    """A front for these settings. Raises `SettingsError` for a file that cannot be used."""
    access = lasting.metrics.access
    guard = build_guard(config.auth, access, former=former.guard if former is not None else None)
    surroundings = Surroundings(
        config=config,
        models=lasting.models,
        limiter=Limiter(config.tenants, lasting.store, access),
        admission=lasting.admission,
        encoder=lasting.encoder,
        salts=lasting.salts,
        metrics=lasting.metrics,
    )
    router = _routes(surroundings, lasting.about)
    add_batch_routes(router, lasting.batches, config.requests.max_field_bytes)
    return Front(guard, Cors(config.cors_origins), router, _lines(surroundings, lasting))


def _lines(around: Surroundings, lasting: Lasting) -> Mapping[str, LineHandler]:
    """The same path as for everybody, behind everybody."""
    limits, tenants = around.config.requests, around.config.tenants.in_class("batch")
    limiter = Limiter(tenants, lasting.store, lasting.metrics.access)
    behind = replace(around, limiter=limiter)
    return {
        CHAT: GenerationEndpoint(ChatDialect(limits), behind),
        TEXT: GenerationEndpoint(CompletionDialect(limits), behind),
    }


def _routes(around: Surroundings, about: About) -> Router:
    """Everything there is. What is not here is answered with 404."""
    limits = around.config.requests
    chat = GenerationEndpoint(ChatDialect(limits), around)
    completion = GenerationEndpoint(CompletionDialect(limits), around)
    tokens = Tokens(around.models, around.encoder, around.limiter, limits.max_field_bytes)
    router = Router()
    router.add("POST", "/v1/chat/completions", chat, Access.INFER)
    router.add("POST", "/v1/completions", completion, Access.INFER)
    router.add("POST", "/v1/embeddings", refuse_embeddings, Access.INFER)
    router.add("POST", "/tokenize", tokens.tokenize, Access.INFER)
    router.add("POST", "/detokenize", tokens.detokenize, Access.INFER)
    router.add("GET", "/v1/models", about.models, Access.KNOWN)
    router.add("GET", "/v1/models/*", about.model, Access.KNOWN)
    router.add("GET", "/health", about.health, Access.OPEN)
    router.add("GET", "/readiness", about.readiness, Access.OPEN)
    if around.config.has_metrics:
        router.add("GET", "/metrics", about.metrics, Access.ADMIN)
    router.add("GET", "/version", about.version, Access.KNOWN)
    router.add("GET", "/", about.root, Access.KNOWN)
    return router
