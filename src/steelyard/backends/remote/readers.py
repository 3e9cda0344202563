"""What `/v1/completions` answers: events of a stream as additions to it.

The last tokens are held back until the usage has come, which servers send after them.
"""

from collections.abc import Iterator
from dataclasses import replace
from typing import Any, cast

import msgspec

from steelyard.backends.http.dialect import Delta
from steelyard.backends.http.failures import error_of_event
from steelyard.backends.remote.config import TextCodec
from steelyard.contract import FinishReason, TokenLogprobs, Usage
from steelyard.contract.errors import EngineFailed

__all__ = ["TextReader", "TokenReader", "finish_of"]

_DONE = b"[DONE]"


class _Logprobs(msgspec.Struct):
    tokens: list[str]
    token_logprobs: list[float | None]
    top_logprobs: list[dict[str, float] | None] | None = None


class _Choice(msgspec.Struct):
    text: str | None = None
    token_ids: list[int] | None = None
    finish_reason: str | None = None
    logprobs: _Logprobs | None = None


class _PromptDetails(msgspec.Struct):
    cached_tokens: int | None = None


class _Usage(msgspec.Struct):
    prompt_tokens: int = 0
    completion_tokens: int = 0
    prompt_tokens_details: _PromptDetails | None = None


class _Event(msgspec.Struct):
    choices: list[_Choice] = []
    usage: _Usage | None = None
    error: Any = None


class _Reader:
    """Events in, additions out; how a choice becomes tokens differs."""

    def __init__(self) -> None:
        self._held: Delta | None = None

    def read(self, payload: bytes) -> Delta | None:
        """See `http.dialect.Reader`."""
        if payload == _DONE:
            return self.end()
        event = _decode(payload)
        if event.error is not None:
            raise error_of_event(event.error)
        if self._held is not None:
            if event.usage is None:
                return None
            return self._end_with(event.usage)
        if not event.choices:
            return None
        choice = event.choices[0]
        delta = self._delta(choice)
        if choice.finish_reason is None:
            return delta if delta.token_ids else None
        self._held = delta
        return None

    def end(self) -> Delta | None:
        """See `http.dialect.Reader`."""
        held, self._held = self._held, None
        return held

    def _end_with(self, usage: _Usage) -> Delta:
        held, self._held = self._held, None
        assert held is not None, "asked only while something is held back"
        details = usage.prompt_tokens_details
        cached_tokens = (details.cached_tokens or 0) if details is not None else 0
        told = Usage(usage.prompt_tokens, usage.completion_tokens, cached_tokens)
        return replace(held, usage=told)

    def _delta(self, choice: _Choice) -> Delta:
        raise NotImplementedError


class TokenReader(_Reader):
    """For servers that send the ids of their tokens (`return_token_ids`)."""

    def __init__(self, logprobs: int | None) -> None:
        """`logprobs`: how many alternatives were asked for; None: no log-probabilities."""
        super().__init__()
        self._logprobs = logprobs

    def _delta(self, choice: _Choice) -> Delta:
        values = None
        if self._logprobs is not None and choice.logprobs is not None:
            values = tuple(_values(choice.logprobs, self._logprobs))
        return Delta(tuple(choice.token_ids or ()), values, finish_of(choice.finish_reason))


class TextReader(_Reader):
    """For servers that only send text: its tokens are those that our own tokenizer makes of it."""

    def __init__(self, text: TextCodec) -> None:
        super().__init__()
        self._text = text

    def _delta(self, choice: _Choice) -> Delta:
        ids = self._text.encode(choice.text, add_special_tokens=False) if choice.text else ()
        return Delta(tuple(ids), None, finish_of(choice.finish_reason))


def finish_of(reason: str | None) -> FinishReason | None:
    """In the contract's words. Raises `EngineFailed` when the server gave the request up."""
    if reason is None or reason in ("stop", "length"):
        return cast(FinishReason | None, reason)
    if reason in ("abort", "error"):
        raise EngineFailed(f"the endpoint ended the request with {reason}")
    return "stop"


def _decode(payload: bytes) -> _Event:
    try:
        return _EVENTS.decode(payload)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise EngineFailed(f"an event of the endpoint cannot be read: {error}") from error


def _values(logprobs: _Logprobs, count: int) -> Iterator[TokenLogprobs]:
    tops = logprobs.top_logprobs or [None] * len(logprobs.tokens)
    for value, top in zip(logprobs.token_logprobs, tops, strict=False):
        ranked = sorted((top or {}).items(), key=lambda item: -item[1])[:count]
        yield TokenLogprobs(
            0.0 if value is None else value,
            tuple(_token_id(name) for name, _ in ranked),
            tuple(chance for _, chance in ranked),
        )


def _token_id(name: str) -> int:
    kind, _, number = name.partition(":")
    if kind != "token_id" or not number.isdecimal():
        raise EngineFailed("the endpoint names tokens by text where ids were asked for")
    return int(number)


_EVENTS = msgspec.json.Decoder(_Event)
