"""Answers for the terminal: from an engine of our own, or from a running server.

Both turn a conversation, or a text to be continued, into pieces of text as they are produced.
Who is asked is decided in `terminal`.
"""

import json
import os
import secrets
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol
from urllib.parse import urlsplit

import aiohttp

from steelyard.contract import Engine, GenerateRequest, SamplingParams
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

    def answer(self, messages: Sequence[Message], wishes: Wishes) -> AsyncIterator[str]:
        """The next message of a conversation."""
        ...

    def complete(self, text: str, wishes: Wishes) -> AsyncIterator[str]:
        """What follows `text`, without any chat template."""
        ...


class EngineTalker:
    """Asks an engine directly."""

    def __init__(
        self, engine: Engine, text: TextModel, wait_ready: Callable[[], Awaitable[None]]
    ) -> None:
        """`wait_ready` returns at once unless the engine is being restarted."""
        self._engine = engine
        self._text = text
        self._wait_ready = wait_ready

    async def answer(self, messages: Sequence[Message], wishes: Wishes) -> AsyncIterator[str]:
        """See `Talker.answer`."""
        async for piece in self._continue(self._text.encode_chat(messages), wishes):
            yield piece

    async def complete(self, text: str, wishes: Wishes) -> AsyncIterator[str]:
        """See `Talker.complete`."""
        async for piece in self._continue(self._text.encode(text), wishes):
            yield piece

    async def _continue(self, prompt_ids: Sequence[int], wishes: Wishes) -> AsyncIterator[str]:
        await self._wait_ready()
        left = max(self._engine.info.context_tokens - len(prompt_ids), 1)
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
        async for chunk in self._engine.generate(request):
            yield stream.push(chunk.token_ids)
        yield stream.flush()


class ServerTalker:
    """Asks an OpenAI-compatible server."""

    def __init__(self, session: aiohttp.ClientSession, url: str, model: str | None) -> None:
        """`model` None: the first one that the server lists. Raises `InvalidRequest` for no URL."""
        self._session = session
        self._url = _base(url)
        self._model = model

    async def answer(self, messages: Sequence[Message], wishes: Wishes) -> AsyncIterator[str]:
        """See `Talker.answer`."""
        body = {"messages": list(messages)}
        async for choice in self._choices("/v1/chat/completions", body, wishes):
            yield (choice.get("delta") or {}).get("content") or ""

    async def complete(self, text: str, wishes: Wishes) -> AsyncIterator[str]:
        """See `Talker.complete`."""
        async for choice in self._choices("/v1/completions", {"prompt": text}, wishes):
            yield choice.get("text") or ""

    async def _choices(
        self, path: str, asked: Mapping[str, Any], wishes: Wishes
    ) -> AsyncIterator[Mapping[str, Any]]:
        """The first choice of every event. Raises `EngineLost` when the last event is missing."""
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
                    event = _event(line)
                    if event == "[DONE]":
                        return
                    if isinstance(event, dict) and event.get("choices"):
                        yield event["choices"][0]
        except (aiohttp.ClientError, TimeoutError, ValueError) as error:
            raise self._translated(error) from error
        raise EngineLost(f"{self._url} ended the answer before it was complete")

    async def _name(self) -> str:
        if self._model is None:
            async with self._session.get(f"{self._url}/v1/models") as answer:
                await _require_ok(answer)
                listed = (await answer.json(content_type=None))["data"]
            if not listed:
                raise NotFound(f"{self._url} serves no model")
            self._model = str(listed[0]["id"])
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


def _event(line: bytes) -> Any:
    """What one line of an event stream says; None for comments and other fields."""
    if not line.startswith(b"data:"):
        return None
    data = line.removeprefix(b"data:").strip()
    if data == b"[DONE]":
        return "[DONE]"
    event = json.loads(data)
    if isinstance(event, dict) and event.get("error"):
        raise InternalError(_message(event, str(event["error"])))
    return event


async def _require_ok(answer: aiohttp.ClientResponse) -> None:
    """Raise what the server says is wrong, unless nothing is."""
    if answer.status == 200:
        return
    text = await answer.text(errors="replace")
    try:
        message = _message(json.loads(text), text[:200])
    except ValueError:
        message = text[:200]
    raise InternalError(f"the server answered {answer.status}: {message}")


def _message(body: Any, otherwise: str) -> str:
    """The message of an OpenAI error object."""
    try:
        return str(body["error"]["message"])
    except (KeyError, TypeError):
        return otherwise
