"""Delivers an order as server-sent events.

One choice is pumped by the request's own task; several get a task each and write to the same
stream, event by event. Nothing is queued here: a client that reads too slowly stops the pump
(`EventStream.drain`), and the engine's tokens wait where they are.
"""

from contextlib import suppress

from steelyard.contract import TokenChunk
from steelyard.contract.errors import EngineFailed
from steelyard.gateway.config import GatewayConfig
from steelyard.gateway.generation.choice import ChoiceText, total_usage
from steelyard.gateway.generation.chunks import open_chunks, run_all
from steelyard.gateway.generation.dialect import Dialect, Logprobs, wants_usage
from steelyard.gateway.generation.order import Order, OrderedChoice
from steelyard.gateway.generation.watch import Watch
from steelyard.gateway.http import ClientGone, EventStream
from steelyard.telemetry.request_meter import RequestMeter

__all__ = ["stream_order"]

_KEEP_ALIVE = b": keep-alive\n\n"
_DONE = b"data: [DONE]\n\n"


async def stream_order(
    order: Order, dialect: Dialect, stream: EventStream, config: GatewayConfig, meter: RequestMeter
) -> None:
    """Write all choices, the usage if asked for, and `[DONE]`.

    Raises errors of the tree, before or after the stream has begun; it is then not ended.
    """

    def say_that_we_live() -> None:
        with suppress(ClientGone):  # the client's leaving is noticed elsewhere
            stream.write(_KEEP_ALIVE)

    async with Watch(config.stall_timeout_s, config.keepalive_comment_s, say_that_we_live) as watch:
        texts = await run_all(
            [
                _pump(order, StreamedChoice(order, choice, dialect), stream, watch, meter)
                for choice in order.choices
            ]
        )
    usage = total_usage(texts)
    last = dialect.usage_event(order, usage) if wants_usage(order) else b""
    stream.end(last + _DONE)
    await stream.drain()
    meter.finished(texts[0].finish_reason or "stop", usage)


async def _pump(
    order: Order, choice: "StreamedChoice", stream: EventStream, watch: Watch, meter: RequestMeter
) -> ChoiceText:
    """The loop that runs once per chunk of every stream."""
    text = choice.text
    tokens = meter.stream()
    async with open_chunks(order.served.engine, text.choice.request) as chunks:
        async for chunk in chunks:
            events = choice.render(chunk)
            if text.kept:
                tokens.tokens(text.kept)
            if events:
                stream.write(events)
            watch.touched(has_spoken=bool(events))
            if text.finish_reason is not None:
                return text
            if stream.is_behind:
                await stream.drain()
    raise EngineFailed("the engine ended a stream without a finish reason")


class StreamedChoice:
    """One choice on its way from chunks to events."""

    __slots__ = ("_events", "_has_begun", "_is_plain", "_wants_ids", "text")

    def __init__(self, order: Order, choice: OrderedChoice, dialect: Dialect) -> None:
        self.text = ChoiceText(order, choice)
        self._events = dialect.events(order, choice)
        self._wants_ids = bool(order.ask.fields.return_token_ids)
        self._is_plain = order.ask.logprobs is None and not self._wants_ids
        self._has_begun = False

    def render(self, chunk: TokenChunk) -> bytes:
        """The events `chunk` is worth; empty when its text is still held back."""
        text = self.text.push(chunk)
        if self._is_plain and self._has_begun and self.text.finish_reason is None:
            return self._events.text(text) if text else b""
        return self._render_fully(chunk, text)

    def _render_fully(self, chunk: TokenChunk, text: str) -> bytes:
        opening = b"" if self._has_begun else self._events.opening
        self._has_begun = True
        finish_reason = self.text.finish_reason
        if self._is_plain and finish_reason is None:
            return opening + self._events.text(text) if text else opening
        ids = chunk.token_ids[: self.text.kept]
        logprobs = None
        if chunk.logprobs is not None:
            logprobs = Logprobs(ids, chunk.logprobs[: self.text.kept])
        return opening + self._events.full(
            text, finish_reason, ids if self._wants_ids else None, logprobs
        )
