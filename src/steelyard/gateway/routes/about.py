"""Health, readiness, metrics, version and the list of models.

`/health` says that this process's loop runs, nothing more: an orchestrator that restarts the door
because an engine is loading would never see it loaded. `/readiness` asks the engines.
"""

import msgspec

from steelyard import __version__
from steelyard.contract import Clock
from steelyard.contract.clock import within
from steelyard.contract.errors import EngineStarting, SteelyardError
from steelyard.gateway.errors import Refusal
from steelyard.gateway.http import Answer, Exchange, json_answer
from steelyard.gateway.metrics_page import MetricsPage
from steelyard.gateway.models import ModelTable, ServedModel

__all__ = ["About", "ModelCard"]


class ModelCard(msgspec.Struct, kw_only=True):
    """One entry of `/v1/models`."""

    id: str
    object: str = "model"
    created: int
    owned_by: str = "steelyard"
    max_model_len: int | None = None
    """vLLM's name for the context; null while the engine is not ready."""


class ModelList(msgspec.Struct):
    data: list[ModelCard]
    object: str = "list"


class About:
    """The door about itself."""

    def __init__(
        self, models: ModelTable, page: MetricsPage, clock: Clock, readiness_timeout_s: float
    ) -> None:
        self._models = models
        self._page = page
        self._clock = clock
        self._readiness_timeout_s = readiness_timeout_s

    async def root(self, exchange: Exchange) -> None:
        """`/`: for people who open the address in a browser."""
        await exchange.send(
            json_answer({"service": "steelyard", "version": __version__, "api": "/v1"})
        )

    async def health(self, exchange: Exchange) -> None:
        """`/health`: 200 as long as anything can be answered at all."""
        await exchange.send(json_answer({"status": "alive"}))

    async def readiness(self, exchange: Exchange) -> None:
        """`/readiness`: 200 when requests can be served now, else 503 with the reason."""
        reason = await self._trouble()
        if reason is not None:
            raise Refusal(
                503,
                f"Not ready: {reason}.",
                kind="service_unavailable_error",
                code="not_ready",
                retry_after_s=1.0,
            )
        await exchange.send(json_answer({"status": "ready"}))

    async def metrics(self, exchange: Exchange) -> None:
        """`/metrics`: all values of all processes of this service."""
        body, content_type = await self._page.exposition(exchange.header("accept") or "")
        await exchange.send(Answer(body, content_type=content_type))

    async def version(self, exchange: Exchange) -> None:
        """`/version`."""
        await exchange.send(json_answer({"version": __version__}))

    async def models(self, exchange: Exchange) -> None:
        """`/v1/models`."""
        cards = [_card(model) for model in self._models.visible(exchange.caller)]
        await exchange.send(json_answer(ModelList(cards)))

    async def model(self, exchange: Exchange) -> None:
        """`/v1/models/{id}`; an id may hold slashes."""
        name = exchange.path.removeprefix("/v1/models/")
        await exchange.send(json_answer(_card(self._models.find(name, exchange.caller))))

    async def _trouble(self) -> str | None:
        """Why a model cannot be served now; None when all can."""
        for model in self._models:
            try:
                status = await within(self._clock, self._readiness_timeout_s, model.engine.status())
            except TimeoutError:
                return f"the engine of {model.name} does not answer"
            except EngineStarting as error:
                return error.message
            except SteelyardError as error:
                return f"the engine of {model.name} is not there ({error.code})"
            if status.state != "ready":
                return f"the engine of {model.name} is {status.state}"
        return None


def _card(model: ServedModel) -> ModelCard:
    try:
        context_tokens = model.engine.info.context_tokens
    except SteelyardError:
        context_tokens = None
    return ModelCard(id=model.name, created=model.created, max_model_len=context_tokens)
