"""What the events of OpenAI-compatible streams hold, as far as a measurement needs it.

One set of types reads chat and text completions of Steelyard, vLLM, SGLang, llama.cpp's server and
OpenAI itself; unknown fields are skipped unread, so decoding costs about a microsecond.
"""

from typing import Any

import msgspec

__all__ = ["Choice", "Chunk", "Delta", "Usage", "decode_chunk", "error_text"]


class PromptDetails(msgspec.Struct):
    """`prompt_tokens_details`."""

    cached_tokens: int | None = None


class CompletionDetails(msgspec.Struct):
    """`completion_tokens_details`."""

    reasoning_tokens: int | None = None


class Usage(msgspec.Struct):
    """`usage`; None where the server does not say."""

    prompt_tokens: int | None = None
    completion_tokens: int | None = None
    prompt_tokens_details: PromptDetails | None = None
    completion_tokens_details: CompletionDetails | None = None
    reasoning_tokens: int | None = None
    """SGLang's place for it."""

    @property
    def cached(self) -> int | None:
        details = self.prompt_tokens_details
        return None if details is None else details.cached_tokens

    @property
    def reasoning(self) -> int | None:
        details = self.completion_tokens_details
        return self.reasoning_tokens if details is None else details.reasoning_tokens


class Delta(msgspec.Struct):
    """`delta` of a chat stream, or `message` of a whole answer."""

    content: str | None = None
    reasoning_content: str | None = None
    reasoning: str | None = None
    """The newer name of the same."""
    tool_calls: msgspec.Raw = msgspec.Raw()
    """Unread; empty when there is no such field."""


class Choice(msgspec.Struct):
    """One of `choices`."""

    delta: Delta | None = None
    message: Delta | None = None
    text: str | None = None
    token_ids: list[int] | None = None
    finish_reason: str | None = None


class Chunk(msgspec.Struct):
    """One event, or the body of a whole answer."""

    choices: list[Choice] = []
    usage: Usage | None = None
    error: Any = None


decode_chunk = msgspec.json.Decoder(Chunk).decode
"""Raises `msgspec.MsgspecError` when it is none."""


def error_text(error: object) -> str:
    """What a server's error object says, in one line of at most 200 characters."""
    if isinstance(error, dict):
        error = error.get("message") or error.get("code") or error
    return " ".join(str(error).split())[:200]
