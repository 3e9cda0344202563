"""Clients that stream completions and keep every token with the time at which it came."""

import asyncio
import json
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import aiohttp
from benchmarks.failover.service import Service

__all__ = ["Stream", "begin", "lost_tokens", "quantile", "repeated_tokens"]


@dataclass
class Stream:
    """One completion as its client saw it."""

    prompt: str
    tokens: list[str] = field(default_factory=list)
    times_s: list[float] = field(default_factory=list)
    usage: Any = None
    error: Any = None
    is_done: bool = False

    @property
    def has_failed(self) -> bool:
        return self.error is not None or not self.is_done

    def gap_s(self, since_s: float) -> float:
        """The longest silence that ended after `since_s`."""
        pairs = zip(self.times_s, self.times_s[1:], strict=False)
        return max((later - t for t, later in pairs if later >= since_s), default=0.0)


def begin(service: Service, prompts: Sequence[str], **fields: Any) -> "list[asyncio.Task[Stream]]":
    """Ask all of them at once."""
    return [asyncio.create_task(_ask(service, Stream(prompt), fields)) for prompt in prompts]


async def _ask(service: Service, stream: Stream, fields: dict[str, Any]) -> Stream:
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
    url = f"{service.url}/v1/completions"
    try:
        async with service.session.post(url, json=body, timeout=timeout) as answer:
            async for line in answer.content:
                if line.startswith(b"data: "):
                    _note(stream, line.removeprefix(b"data: ").strip())
    except aiohttp.ClientError as error:
        stream.error = repr(error)
    return stream


def _note(stream: Stream, data: bytes) -> None:
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


def lost_tokens(stream: Stream, expected: Stream) -> int:
    """Tokens of the undisturbed stream that this one has not, or has otherwise."""
    return len(expected.tokens) - _common(stream, expected)


def repeated_tokens(stream: Stream, expected: Stream) -> int:
    """Tokens of this stream that the undisturbed one has not, or has otherwise."""
    return len(stream.tokens) - _common(stream, expected)


def _common(stream: Stream, expected: Stream) -> int:
    pairs = enumerate(zip(stream.tokens, expected.tokens, strict=False))
    shorter = min(len(stream.tokens), len(expected.tokens))
    return next((index for index, (got, due) in pairs if got != due), shorter)


def quantile(values: Sequence[float], q: float) -> float:
    """By linear interpolation."""
    ordered = sorted(values)
    at = q * (len(ordered) - 1)
    low = int(at)
    high = min(low + 1, len(ordered) - 1)
    return ordered[low] + (ordered[high] - ordered[low]) * (at - low)
