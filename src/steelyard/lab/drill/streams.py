"""Greedy streams that keep every token, with the time at which it came."""

import asyncio
import json
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import aiohttp

__all__ = ["DrillStream", "begin_streams"]


@dataclass(slots=True)
class DrillStream:
    """One completion as its client saw it."""

    prompt: str
    tokens: list[str] = field(default_factory=list)
    times_s: list[float] = field(default_factory=list)
    usage: dict[str, Any] = field(default_factory=dict)
    error: object = None
    is_done: bool = False
    """It ended as streams end, with `[DONE]`."""

    @property
    def has_failed(self) -> bool:
        return self.error is not None or not self.is_done

    @property
    def counts(self) -> tuple[object, object]:
        """What is billed, as far as it does not depend on caches."""
        return self.usage.get("prompt_tokens"), self.usage.get("completion_tokens")

    def gap_s(self, since_s: float) -> float:
        """The longest silence that ended after `since_s`; 0 when it had ended before."""
        pairs = zip(self.times_s, self.times_s[1:], strict=False)
        return max((later - t for t, later in pairs if later >= since_s), default=0.0)

    def lost(self, undisturbed: "DrillStream") -> int:
        """Tokens of the undisturbed stream that this one has not, or has otherwise."""
        return len(undisturbed.tokens) - self._common(undisturbed)

    def repeated(self, undisturbed: "DrillStream") -> int:
        """Tokens of this stream that the undisturbed one has not, or has otherwise."""
        return len(self.tokens) - self._common(undisturbed)

    def _common(self, other: "DrillStream") -> int:
        pairs = enumerate(zip(self.tokens, other.tokens, strict=False))
        shorter = min(len(self.tokens), len(other.tokens))
        return next((index for index, (got, due) in pairs if got != due), shorter)


def begin_streams(
    session: aiohttp.ClientSession, url: str, prompts: Sequence[str], **fields: Any
) -> "list[asyncio.Task[DrillStream]]":
    """Ask a service for a completion of every prompt, all at once."""
    return [
        asyncio.create_task(_ask(session, url, DrillStream(prompt), fields)) for prompt in prompts
    ]


async def _ask(
    session: aiohttp.ClientSession, url: str, stream: DrillStream, fields: dict[str, Any]
) -> DrillStream:
    body = {
        "temperature": 0,
        "ignore_eos": True,
        "stream": True,
        "stream_options": {"include_usage": True},
        "logprobs": 0,  # so that every token is told, not only the text
        **fields,
        "prompt": stream.prompt,
    }
    timeout = aiohttp.ClientTimeout(total=None)
    try:
        async with session.post(f"{url}/v1/completions", json=body, timeout=timeout) as answer:
            if answer.status != 200:
                stream.error = await answer.text()
                return stream
            async for line in answer.content:
                if line.startswith(b"data: "):
                    _note(stream, line.removeprefix(b"data: ").strip())
    except aiohttp.ClientError as error:
        stream.error = repr(error)
    return stream


def _note(stream: DrillStream, data: bytes) -> None:
    if data == b"[DONE]":
        stream.is_done = True
        return
    now_s = time.monotonic()
    event = json.loads(data)
    stream.error = event.get("error") or stream.error
    stream.usage = event.get("usage") or stream.usage
    for choice in event.get("choices", ()):
        tokens = (choice.get("logprobs") or {}).get("tokens", ())
        stream.tokens += tokens
        stream.times_s += [now_s] * len(tokens)
