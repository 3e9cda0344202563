"""Answers for the terminal: from an engine of our own, or from a running server.

Both turn a conversation, or a text to be continued, into pieces of text as they are produced.
Who is asked is decided in `terminal`.
"""

import contextlib
import os
import secrets
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, cast
from urllib.parse import urlsplit

import aiohttp
import msgspec

from steelyard.contract import (
    Engine,
    EngineInfo,
    GenerateRequest,
    SamplingParams,
    TokenChunk,
)
from steelyard.contract.errors import EngineLost, InternalError, InvalidRequest, NotFound
from steelyard.text.text_model import TextModel

__all__ = ["EngineTalker", "Message", "ServerTalker", "Talker", "Wishes"]

Message = dict[str, str]
"""`role` and `content`."""


@dataclass(frozen=True, slots=True)
class Wishes:
    """How an answer should be drawn."""

    max_tokens: int | None = None
    """None: what the context leaves."""
    temperature: float = 1.0
    seed: int | None = None
    """None draws one."""


class Talker(Protocol):
    """Whoever answers, piece by piece. Closing an iterator early stops the work.

    All methods raise errors of the tree.
    """

    def answer(self, messages: Sequence[Message], wishes: Wishes) -> AsyncGenerator[str, None]:
        """The next message of a conversation."""
        ...

    def complete(self, text: str, wishes: Wishes) -> AsyncGenerator[str, None]:
        """What follows `text`, without any chat template."""
        ...


class EngineTalker:
    """Asks an engine directly."""

    def __init__(
        self, engine: Engine, text: TextModel, wait_ready: Callable[[], Awaitable[EngineInfo]]
    ) -> None:
        """`wait_ready` returns at once unless the engine is being restarted."""
        self._engine = engine
        self._text = text
        self._wait_ready = wait_ready

    def answer(self, messages: Sequence[Message], wishes: Wishes) -> AsyncGenerator[str, None]:
        """See `Talker.answer`."""
        return self._continue(self._text.encode_chat(messages), wishes)

    def complete(self, text: str, wishes: Wishes) -> AsyncGenerator[str, None]:
        """See `Talker.complete`."""
        return self._continue(self._text.encode(text), wishes)

    async def _continue(
        self, prompt_ids: Sequence[int], wishes: Wishes
    ) -> AsyncGenerator[str, None]:
        info = await self._wait_ready()
        left = max(info.context_tokens - len(prompt_ids), 1)
        sampling = SamplingParams(
            max_tokens=min(wishes.max_tokens or left, left),
            temperature=wishes.temperature,
            seed=secrets.randbits(63) if wishes.seed is None else wishes.seed,
        )
        request = GenerateRequest(
            request_id=f"terminal-{secrets.token_hex(8)}",
            prompt_ids=tuple(prompt_ids),
            sampling=sampling,
        )
        stream = self._text.stream()
        chunks = cast(AsyncGenerator[TokenChunk, None], self._engine.generate(request))
        async with contextlib.aclosing(chunks):
            async for chunk in chunks:
                yield stream.push(chunk.token_ids)
        yield stream.flush()


class ServerTalker:
    """Asks an OpenAI-compatible server."""

    def __init__(self, session: aiohttp.ClientSession, url: str, model: str | None) -> None:
        """`model` None: the first one that the server lists. Raises `InvalidRequest` for no URL."""
        self._session = session
        self._url = _base(url)
        self._model = model

    async def find_model(self) -> None:
        """Settle which model is asked. Raises what keeps the server from saying so."""
        try:
            await self._name()
        except _CANNOT_TALK as error:
            raise self._translated(error) from error

    def answer(self, messages: Sequence[Message], wishes: Wishes) -> AsyncGenerator[str, None]:
        """See `Talker.answer`."""
        return self._texts("/v1/chat/completions", {"messages": list(messages)}, wishes)

    def complete(self, text: str, wishes: Wishes) -> AsyncGenerator[str, None]:
        """See `Talker.complete`."""
        return self._texts("/v1/completions", {"prompt": text}, wishes)

    async def _texts(
        self, path: str, asked: Mapping[str, Any], wishes: Wishes
    ) -> AsyncGenerator[str, None]:
        """What the first choice says. Raises `EngineLost` when the last event is missing."""
        try:
            body = {
                **asked,
                "model": await self._name(),
                "stream": True,
                "temperature": wishes.temperature,
                "max_tokens": wishes.max_tokens,
                "seed": wishes.seed,
            }
            body = {key: value for key, value in body.items() if value is not None}
            async with self._session.post(self._url + path, json=body) as answer:
                await _require_ok(answer)
                async for line in answer.content:
                    if not line.startswith(b"data:"):
                        continue
                    data = line.removeprefix(b"data:").strip()
                    if data == b"[DONE]":
                        return
                    event = msgspec.json.decode(data, type=_Event)
                    if event.error is not None:
                        raise InternalError(event.error.message)
                    if event.choices:
                        yield event.choices[0].text or event.choices[0].delta.content or ""
        except _CANNOT_TALK as error:
            raise self._translated(error) from error
        raise EngineLost(f"{self._url} ended the answer before it was complete")

    async def _name(self) -> str:
        if self._model is None:
            async with self._session.get(f"{self._url}/v1/models") as answer:
                await _require_ok(answer)
                listed = msgspec.json.decode(await answer.read(), type=_Models).data
            if not listed:
                raise NotFound(f"{self._url} serves no model")
            self._model = listed[0].id
        return self._model

    def _translated(self, error: Exception) -> EngineLost:
        reason = str(error) or "it does not answer"
        if isinstance(error, aiohttp.ClientConnectorError):
            number = error.os_error.errno
            # asyncio's own text repeats the address; negative numbers are those of the resolver.
            reason = os.strerror(number) if number and number > 0 else str(error.os_error.strerror)
        return EngineLost(
            f"{self._url} cannot be used: {reason}",
            fix="start `steelyard serve` there, or correct --url",
        )


_CANNOT_TALK = (aiohttp.ClientError, TimeoutError, ValueError, RecursionError)
"""What comes of a server that is not there, or is none of OpenAI's kind."""


def _base(url: str) -> str:
    """The address without the path that clients of OpenAI's are given."""
    try:
        parts = urlsplit(url)
        is_whole = parts.scheme in {"http", "https"} and parts.hostname and parts.port != 0
    except ValueError:  # brackets or a port out of range
        is_whole = False
    if not is_whole:
        raise InvalidRequest(
            f"{url!r} is no address of a server",
            param="--url",
            fix="write it like http://host:8000",
        )
    return url.rstrip("/").removesuffix("/v1")


class _Problem(msgspec.Struct):
    message: str


class _Delta(msgspec.Struct):
    content: str | None = None


class _Choice(msgspec.Struct):
    """`delta` in chats, `text` in completions."""

    delta: _Delta = msgspec.field(default_factory=_Delta)
    text: str | None = None


class _Event(msgspec.Struct):
    choices: list[_Choice] = []
    error: _Problem | None = None


class _Model(msgspec.Struct):
    id: str


class _Models(msgspec.Struct):
    data: list[_Model]


async def _require_ok(answer: aiohttp.ClientResponse) -> None:
    """Raise what the server says is wrong, unless nothing is."""
    if answer.status == 200:
        return
    body = await answer.read()
    message = body.decode(errors="replace")[:200]
    with contextlib.suppress(ValueError, RecursionError):
        problem = msgspec.json.decode(body, type=_Event).error
        message = message if problem is None else problem.message
    raise InternalError(f"the server answered {answer.status}: {message}")
