"""Reads answers and streams into the shape of `answers`.

Reads only what `schemas` names. Whether an answer is right is not decided here, but whether it can
be understood at all is: `Malformed` says where not.
"""

from collections.abc import Iterable, Sequence
from typing import Any, TypeVar

import msgspec

from steelyard.lab.verify.answers import Answer, Choice, Chunk, Malformed, StreamedAnswer, Token
from steelyard.lab.verify.endpoints import Endpoint
from steelyard.lab.verify.event_stream import SseEvent, read_events
from steelyard.lab.verify.exchange import Exchange, excerpt
from steelyard.lab.verify.schemas import (
    ChatAnswer,
    ChatChoice,
    ChatLogprobs,
    TextAnswer,
    TextChoice,
    TextLogprobs,
)

__all__ = ["convert", "read_answer", "read_stream"]

StructT = TypeVar("StructT")
_DONE = "[DONE]"


def read_answer(endpoint: Endpoint, exchange: Exchange) -> Answer:
    """Read a whole answer with a 2xx status. Raises `Malformed`."""
    try:
        decoded = exchange.json()
    except ValueError as error:
        raise Malformed(f"the body is no JSON text: {error}") from None
    body = convert(decoded, endpoint.schema)
    return Answer(endpoint, exchange, *_head(body), _sum([body], endpoint), body.usage)


def read_stream(endpoint: Endpoint, exchange: Exchange) -> StreamedAnswer:
    """Read a stream with a 2xx status. Raises `Malformed`."""
    stream = read_events(exchange.pieces)
    done_at = next((i for i, e in enumerate(stream.events) if e.data == _DONE), None)
    events = stream.events[:done_at]
    chunks = [_chunk(endpoint, event) for event in events]
    if not chunks:
        raise Malformed(
            f"the stream has no events: {excerpt(exchange.body.decode(errors='replace'))}"
        )
    bodies = [chunk.body for chunk in chunks]
    usages = [body.usage for body in bodies if body.usage is not None]
    after = () if done_at is None else stream.events[done_at + 1 :]
    return StreamedAnswer(
        endpoint,
        exchange,
        *_head(bodies[0]),
        _sum(bodies, endpoint),
        usages[-1] if usages else None,
        tuple(chunks),
        stream.faults,
        done_at is not None,
        tuple(event.data for event in after),
    )


def convert(value: Any, schema: type[StructT]) -> StructT:
    """`value` in the shape of `schema`. Raises `Malformed` with the place that does not fit."""
    try:
        return msgspec.convert(value, schema)
    except msgspec.ValidationError as error:
        raise Malformed(str(error)) from None


def _chunk(endpoint: Endpoint, event: SseEvent) -> Chunk:
    try:
        decoded = msgspec.json.decode(event.data)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise Malformed(f"an event is no JSON text ({error}): {excerpt(event.data, 120)}") from None
    if isinstance(decoded, dict) and "error" in decoded:
        raise Malformed(f"an error came inside the stream: {excerpt(event.data, 300)}")
    return Chunk(convert(decoded, endpoint.schema), event.at_s)


def _head(body: ChatAnswer | TextAnswer) -> tuple[str, str, int, str]:
    return body.id, body.object, body.created, body.model


def _sum(bodies: Sequence[ChatAnswer | TextAnswer], endpoint: Endpoint) -> tuple[Choice, ...]:
    """The choices of a whole answer, or of all chunks of a stream put together."""
    parts: dict[int, list[ChatChoice | TextChoice]] = {}
    for body in bodies:
        for choice in body.choices:
            parts.setdefault(choice.index, []).append(choice)
    prompt_ids = next(
        (b.prompt_token_ids for b in bodies if isinstance(b, ChatAnswer) and b.prompt_token_ids),
        None,
    )
    return tuple(_join(index, parts[index], prompt_ids) for index in sorted(parts))


def _join(
    index: int, parts: Sequence[ChatChoice | TextChoice], prompt_ids: list[int] | None
) -> Choice:
    messages = [m for p in parts if isinstance(p, ChatChoice) and (m := p.message or p.delta)]
    texts = [p.text for p in parts if isinstance(p, TextChoice)]
    texts += [m.content for m in messages if m.content is not None]
    for part in parts:
        if isinstance(part, TextChoice) and part.prompt_token_ids:
            prompt_ids = part.prompt_token_ids
    logprobs = [_tokens(part) for part in parts]
    tokens = [token for some in logprobs if some for token in some]
    ids = [part.token_ids for part in parts if part.token_ids is not None]
    reasons = [part.finish_reason for part in parts if part.finish_reason is not None]
    return Choice(
        index=index,
        content="".join(texts) if texts else None,
        finish_reason=reasons[-1] if reasons else None,
        reasoning="".join(m.reasoning or m.reasoning_content or "" for m in messages),
        tokens=tuple(tokens) if any(some is not None for some in logprobs) else None,
        has_chat_logprobs=any(map(_has_chat_shape, parts)),
        token_ids=tuple(i for some in ids for i in some) if ids else None,
        prompt_token_ids=tuple(prompt_ids) if prompt_ids else None,
        role=next((m.role for m in messages if m.role is not None), None),
        tool_calls=tuple(
            (call.function.name or "", call.function.arguments or "")
            for m in messages
            for call in m.tool_calls or ()
        ),
    )


def _has_chat_shape(choice: ChatChoice | TextChoice) -> bool:
    if choice.logprobs is None:
        return False
    return isinstance(choice.logprobs, ChatLogprobs) or "content" in choice.logprobs


def _tokens(choice: ChatChoice | TextChoice) -> Iterable[Token] | None:
    logprobs = choice.logprobs
    if logprobs is None:
        return None
    if isinstance(logprobs, ChatLogprobs):
        return _chat_tokens(logprobs)
    if "content" in logprobs:
        return _chat_tokens(convert(logprobs, ChatLogprobs))
    return _text_tokens(convert(logprobs, TextLogprobs))


def _chat_tokens(logprobs: ChatLogprobs) -> list[Token] | None:
    if logprobs.content is None:
        return None
    return [
        Token(
            text=token.token,
            logprob=token.logprob,
            top=tuple((top.token, top.logprob) for top in token.top_logprobs),
            raw=None if token.bytes is None else _bytes(token.bytes),
            id=token.id,
        )
        for token in logprobs.content
    ]


def _text_tokens(logprobs: TextLogprobs) -> list[Token]:
    count = len(logprobs.tokens)
    tops = logprobs.top_logprobs or [None] * count
    offsets: Sequence[int | None] = logprobs.text_offset or [None] * count
    if not len(logprobs.token_logprobs) == len(tops) == len(offsets) == count:
        raise Malformed("the lists of logprobs have different lengths")
    return [
        Token(text=text, logprob=value, top=tuple((top or {}).items()), offset=offset)
        for text, value, top, offset in zip(
            logprobs.tokens, logprobs.token_logprobs, tops, offsets, strict=True
        )
    ]


def _bytes(values: list[int]) -> bytes:
    try:
        return bytes(values)
    except ValueError:
        raise Malformed(f"bytes of a token are no bytes: {values[:8]}") from None
