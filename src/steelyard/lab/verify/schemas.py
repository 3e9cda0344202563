"""The parts of OpenAI's answers that are judged, as msgspec schemas. Other members are ignored.

`answers` turns them into one shape for both endpoints, whole or streamed.
"""

from typing import Any

import msgspec

__all__ = [
    "ChatAnswer",
    "ChatChoice",
    "ChatLogprobs",
    "ChatToken",
    "ErrorBody",
    "ModelCard",
    "ModelList",
    "TextAnswer",
    "TextChoice",
    "TextLogprobs",
    "UsageBody",
]


class PromptDetails(msgspec.Struct):
    cached_tokens: int | None = None


class UsageBody(msgspec.Struct):
    prompt_tokens: int
    completion_tokens: int
    total_tokens: int
    prompt_tokens_details: PromptDetails | None = None


class TopToken(msgspec.Struct):
    token: str
    logprob: float
    bytes: list[int] | None = None
    id: int | None = None
    """llama.cpp's extra."""


class ChatToken(TopToken):
    top_logprobs: list[TopToken] = []


class ChatLogprobs(msgspec.Struct):
    content: list[ChatToken] | None = None


class TextLogprobs(msgspec.Struct):
    tokens: list[str]
    token_logprobs: list[float | None]
    top_logprobs: list[dict[str, float] | None] | None = None
    text_offset: list[int] = []


class ToolFunction(msgspec.Struct):
    name: str | None = None
    arguments: str | None = None


class ToolCall(msgspec.Struct):
    function: ToolFunction
    id: str | None = None
    type: str | None = None


class Message(msgspec.Struct):
    """Of a whole answer, or the delta of a chunk."""

    role: str | None = None
    content: str | None = None
    reasoning: str | None = None
    reasoning_content: str | None = None
    tool_calls: list[ToolCall] | None = None


class ChatChoice(msgspec.Struct):
    index: int
    message: Message | None = None
    delta: Message | None = None
    finish_reason: str | None = None
    logprobs: ChatLogprobs | None = None
    token_ids: list[int] | None = None
    """vLLM's extra."""


class TextChoice(msgspec.Struct):
    index: int
    text: str
    finish_reason: str | None = None
    logprobs: dict[str, Any] | None = None
    """Decoded later: some servers send chat's shape here."""
    token_ids: list[int] | None = None
    prompt_token_ids: list[int] | None = None


class ChatAnswer(msgspec.Struct):
    """Whole, or one chunk."""

    id: str
    object: str
    created: int
    model: str
    choices: list[ChatChoice]
    usage: UsageBody | None = None
    prompt_token_ids: list[int] | None = None


class TextAnswer(msgspec.Struct):
    """Whole, or one chunk."""

    id: str
    object: str
    created: int
    model: str
    choices: list[TextChoice]
    usage: UsageBody | None = None


class ModelCard(msgspec.Struct):
    id: str
    object: str
    created: int | None = None
    owned_by: str | None = None
    max_model_len: int | None = None
    """vLLM's extra, ours too."""


class ModelList(msgspec.Struct):
    object: str
    data: list[ModelCard]


class ErrorDetail(msgspec.Struct):
    message: str
    type: str | None = None
    param: str | None = None
    code: str | int | None = None


class ErrorBody(msgspec.Struct):
    error: ErrorDetail
