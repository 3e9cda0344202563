"""Delivers an order as one JSON answer, once all its choices are complete."""

from steelyard.contract import TokenLogprobs
from steelyard.contract.errors import EngineFailed
from steelyard.gateway.config import GatewayConfig
from steelyard.gateway.generation.choice import ChoiceText, total_usage
from steelyard.gateway.generation.chunks import open_chunks, run_all
from steelyard.gateway.generation.dialect import CollectedChoice, Dialect, Logprobs
from steelyard.gateway.generation.order import Order, OrderedChoice
from steelyard.gateway.generation.watch import Watch
from steelyard.telemetry.request_meter import RequestMeter

__all__ = ["collect_order"]


async def collect_order(
    order: Order, dialect: Dialect, config: GatewayConfig, meter: RequestMeter
) -> bytes:
    """The answer's body. Raises errors of the tree; a part of an answer is never returned."""
    async with Watch(config.stall_timeout_s, config.stall_timeout_s) as watch:
        collected = await run_all(
            [_collect(order, choice, watch, meter) for choice in order.choices]
        )
    usage = total_usage([text for text, _ in collected])
    body = dialect.answer(order, [choice for _, choice in collected], usage)
    meter.finished(collected[0][1].finish_reason, usage)
    return body


async def _collect(
    order: Order, choice: OrderedChoice, watch: Watch, meter: RequestMeter
) -> tuple[ChoiceText, CollectedChoice]:
    text = ChoiceText(order, choice)
    tokens = meter.stream()
    parts: list[str] = []
    ids: list[int] = []
    values: list[TokenLogprobs] = []
    async with open_chunks(order.served.engine, choice.request) as chunks:
        async for chunk in chunks:
            watch.touched()
            parts.append(text.push(chunk))
            if text.kept:
                tokens.tokens(text.kept)
            ids += chunk.token_ids[: text.kept]
            if chunk.logprobs is not None:
                values += chunk.logprobs[: text.kept]
            if text.finish_reason is not None:
                logprobs = None if order.ask.logprobs is None else Logprobs(ids, values)
                return text, CollectedChoice(
                    choice, "".join(parts), text.finish_reason, ids, logprobs
                )
    raise EngineFailed("the engine ended a stream without a finish reason")
