"""The path of an inference request, one step per line.

Authentication, budgets, routing and failover will be steps of their own between these. Errors are
raised where they are found and answered by `gateway.app`.
"""

import asyncio
from dataclasses import dataclass

from steelyard.contract.errors import SteelyardError
from steelyard.gateway.admission import Admission
from steelyard.gateway.cache_salt import CacheSalts
from steelyard.gateway.config import GatewayConfig
from steelyard.gateway.generation.collecting import collect_order
from steelyard.gateway.generation.dialect import Dialect
from steelyard.gateway.generation.order import Ask, Order, make_order, plan
from steelyard.gateway.generation.prompts import PromptEncoder
from steelyard.gateway.generation.streaming import stream_order
from steelyard.gateway.http import Answer, ClientGone, Exchange
from steelyard.gateway.models import ModelTable
from steelyard.telemetry.metrics import Metrics
from steelyard.telemetry.request_meter import RequestMeter

__all__ = ["GenerationEndpoint", "Surroundings"]

TENANT = "default"
"""Everybody, as long as nobody is asked for credentials."""


@dataclass(frozen=True, slots=True)
class Surroundings:
    """What all inference endpoints of a door share."""

    config: GatewayConfig
    models: ModelTable
    admission: Admission
    encoder: PromptEncoder
    salts: CacheSalts
    metrics: Metrics


class GenerationEndpoint:
    """Answers POST requests of one dialect."""

    def __init__(self, dialect: Dialect, surroundings: Surroundings) -> None:
        self._dialect = dialect
        self._around = surroundings

    async def __call__(self, exchange: Exchange) -> None:
        """Read, then walk the path with a meter that sees how it ends."""
        body = await exchange.read_body()
        ask = self._read(body)
        with self._meter(ask.fields.model) as meter:
            try:
                await self._walk(exchange, ask, meter)
            except ClientGone:
                meter.cancelled("disconnect")
                raise
            except asyncio.CancelledError:
                meter.cancelled("shutdown" if exchange.interrupted_by else "disconnect")
                raise

    async def _walk(self, exchange: Exchange, ask: Ask, meter: RequestMeter) -> None:
        """Check, queue, tokenise, generate, answer."""
        around = self._around
        served = around.models.find(ask.fields.model)
        vocab_size = served.engine.info.vocab_size
        sampling = plan(ask, vocab_size, around.config.requests)
        async with around.admission.slot():
            prompts = await around.encoder.encode(ask.prompts, served.text, vocab_size)
            order = make_order(
                ask,
                sampling,
                prompts,
                served=served,
                id_prefix=self._dialect.id_prefix,
                cache_salt=around.salts.salt(TENANT, ask.fields.cache_salt),
                tenant=TENANT,
                trace=exchange.header("traceparent"),
                limits=around.config.requests,
            )
            meter.handed_over(order.prompt_tokens)
            await self._deliver(exchange, order, meter)

    async def _deliver(self, exchange: Exchange, order: Order, meter: RequestMeter) -> None:
        config = self._around.config
        if order.ask.fields.stream:
            await stream_order(order, self._dialect, exchange.open_stream(), config, meter)
        else:
            body = await collect_order(order, self._dialect, config, meter)
            await exchange.send(Answer(body))

    def _read(self, body: bytes) -> Ask:
        try:
            return self._dialect.read(body)
        except SteelyardError as error:
            self._meter("").failed(error)
            raise

    def _meter(self, model: str) -> RequestMeter:
        return self._around.metrics.request(self._around.models.metric_name(model), TENANT)
