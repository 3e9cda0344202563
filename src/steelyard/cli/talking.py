"""Answers for the terminal: an engine of our own, or a running server.

Both turn a conversation into pieces of text as they are produced.
"""

import json
import secrets
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from typing import Protocol

import aiohttp

from steelyard.contract import Engine, GenerateRequest, SamplingParams
from steelyard.contract.errors import EngineLost, InternalError
from steelyard.text.text_model import TextModel

__all__ = ["EngineTalker", "Message", "RemoteTalker", "Talker", "Wishes"]

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
    """Whoever answers."""

    def answer(self, messages: Sequence[Message], wishes: Wishes) -> AsyncIterator[str]:
        """The answer, piece by piece. Closing the iterator early stops the work."""
        ...


class EngineTalker:
    """Asks an engine directly."""

    def __init__(self, engine: Engine, text: TextModel) -> None:
        self._engine = engine
        self._text = text

    async def answer(self, messages: Sequence[Message], wishes: Wishes) -> AsyncIterator[str]:
        async for piece in self.complete(self._text.encode_chat(messages), wishes):
            yield piece

    async def complete(self, prompt_ids: Sequence[int], wishes: Wishes) -> AsyncIterator[str]:
        """Continue plain tokens."""
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


class RemoteTalker:
    """Asks an OpenAI-compatible server."""

    def __init__(self, session: aiohttp.ClientSession, url: str, model: str) -> None:
        self._session = session
        self._url = url.rstrip("/").removesuffix("/v1")
        self._model = model

    async def answer(self, messages: Sequence[Message], wishes: Wishes) -> AsyncIterator[str]:
        body = {
            "model": self._model,
            "messages": list(messages),
            "stream": True,
            "temperature": wishes.temperature,
        }
        optional = {"max_tokens": wishes.max_tokens, "seed": wishes.seed}
        body |= {key: value for key, value in optional.items() if value is not None}
        try:
            async with self._session.post(f"{self._url}/v1/chat/completions", json=body) as answer:
                if answer.status != 200:
                    raise InternalError(await _error_text(answer))
                async for line in answer.content:
                    if piece := _piece(line):
                        yield piece
        except aiohttp.ClientError as error:
            raise EngineLost(f"{self._url}: {error}") from error


def _piece(line: bytes) -> str:
    """The text in one line of an event stream; empty for comments, ends and other events."""
    data = line.strip().removeprefix(b"data:").strip()
    if not line.startswith(b"data:") or data == b"[DONE]":
        return ""
    event = json.loads(data)
    if "error" in event:
        raise InternalError(str(event["error"].get("message", event["error"])))
    choices = event.get("choices") or [{}]
    return str(choices[0].get("delta", {}).get("content") or "")


async def _error_text(answer: aiohttp.ClientResponse) -> str:
    text = await answer.text()
    try:
        return str(json.loads(text)["error"]["message"])
    except (ValueError, KeyError, TypeError):
        return f"status {answer.status}: {text[:200]}"
