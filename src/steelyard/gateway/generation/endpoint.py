"""The path of an inference request, one step per line.

Who asks was found out before (`gateway.auth`); routing and failover are behind `served.engine`.
Errors are raised where they are found and answered by `gateway.app`.
"""

import asyncio
from dataclasses import dataclass, replace

from steelyard.contract.errors import SteelyardError
from steelyard.gateway.admission import Admission
from steelyard.gateway.cache_salt import CacheSalts
from steelyard.gateway.config import GatewayConfig, RequestLimits
from steelyard.gateway.generation.collecting import collect_order
from steelyard.gateway.generation.dialect import Dialect
from steelyard.gateway.generation.order import Ask, Order, make_order, plan
from steelyard.gateway.generation.prompts import PromptEncoder
from steelyard.gateway.generation.streaming import stream_order
from steelyard.gateway.http import Answer, Call, ClientGone
from steelyard.gateway.limits.config import TenantRules
from steelyard.gateway.limits.limiter import Limiter
from steelyard.gateway.models import ModelTable
from steelyard.telemetry.metrics import Metrics
from steelyard.telemetry.request_meter import RequestMeter

__all__ = ["GenerationEndpoint", "Surroundings"]


@dataclass(frozen=True, slots=True)
class Surroundings:
    """What all inference endpoints of a door share."""

    config: GatewayConfig
    models: ModelTable
    limiter: Limiter
    admission: Admission
    encoder: PromptEncoder
    salts: CacheSalts
    metrics: Metrics


class GenerationEndpoint:
    """Answers POST requests of one dialect."""

    def __init__(self, dialect: Dialect, surroundings: Surroundings) -> None:
        self._dialect = dialect
        self._around = surroundings

    async def __call__(self, call: Call) -> None:
        """Read, then walk the path with a meter that sees how it ends."""
        body = await call.read_body()
        ask = self._read(call, body)
        with self._meter(call, ask.fields.model) as meter:
            try:
                await self._walk(call, ask, meter)
            except ClientGone:
                meter.cancelled("disconnect")
                raise
            except asyncio.CancelledError:
                meter.cancelled("shutdown" if call.interrupted_by else "disconnect")
                raise

    async def _walk(self, call: Call, ask: Ask, meter: RequestMeter) -> None:
        """Check, get permission, queue, tokenise, reserve, generate, answer."""
        around, tenant = self._around, call.caller.tenant
        served = around.models.find(ask.fields.model, call.caller)
        vocab_size = served.engine.info.vocab_size
        rules = around.limiter.rules(call.caller)
        limits = _request_limits(around.config.requests, rules)
        sampling = plan(ask, vocab_size, limits)
        async with around.limiter.permit(call, meter) as permit, around.admission.slot():
            prompts = await around.encoder.encode(ask.prompts, served.text, vocab_size)
            order = make_order(
                ask,
                sampling,
                prompts,
                served=served,
                id_prefix=self._dialect.id_prefix,
                cache_salt=around.salts.salt(tenant, ask.fields.cache_salt),
                tenant=tenant,
                rules=rules,
                trace=call.header("traceparent"),
                limits=limits,
            )
            await permit.reserve(order.prompt_tokens, order.asked_tokens, order.max_tokens)
            meter.handed_over(order.prompt_tokens)
            await self._deliver(call, order, meter)

    async def _deliver(self, call: Call, order: Order, meter: RequestMeter) -> None:
        config = self._around.config
        if order.ask.fields.stream:
            await stream_order(order, self._dialect, call.open_stream(), config, meter)
        else:
            body = await collect_order(order, self._dialect, config, meter)
            await call.send(Answer(body))

    def _read(self, call: Call, body: bytes) -> Ask:
        try:
            return self._dialect.read(body)
        except SteelyardError as error:
            self._meter(call, "").failed(error)
            raise

    def _meter(self, call: Call, model: str) -> RequestMeter:
        name = self._around.models.metric_name(model)
        return self._around.metrics.request(name, call.caller.tenant)


def _request_limits(of_all: RequestLimits, rules: TenantRules) -> RequestLimits:
    """What one request of a tenant may ask for."""
    if rules.max_tokens is None:
        return of_all
    highest = min(rules.max_tokens, of_all.max_tokens or rules.max_tokens)
    return replace(of_all, max_tokens=highest)
