"""`/v1/chat/completions`: the request's schema.

What the answer looks like is in `generation.dialects`; tools, images and audio are not built and
are refused wherever a value other than "none" would have changed the answer.
"""

from typing import Annotated, Any, Literal

import msgspec

from steelyard.contract.errors import InvalidRequest, UnsupportedFeature
from steelyard.gateway.api.generation import GenerationFields

__all__ = ["ChatRequest", "Message", "plain_messages"]

_Tokens = Annotated[int, msgspec.Meta(ge=1, le=2**31)]


class ContentPart(msgspec.Struct):
    """One part of a message's content; only text is understood."""

    type: str
    text: str | None = None


class Message(msgspec.Struct, forbid_unknown_fields=True):
    """One turn. Clients send answers back as they got them, nulls included."""

    role: Literal["system", "developer", "user", "assistant", "tool", "function"]
    content: str | list[ContentPart] | None = None
    name: str | None = None
    refusal: str | None = None
    annotations: msgspec.Raw = msgspec.Raw()
    audio: msgspec.Raw = msgspec.Raw()
    function_call: msgspec.Raw = msgspec.Raw()
    reasoning: str | None = None
    reasoning_content: str | None = None
    tool_call_id: str | None = None
    tool_calls: msgspec.Raw = msgspec.Raw()


class ChatRequest(GenerationFields, kw_only=True):
    """The body of a chat completion."""

    messages: Annotated[list[Message], msgspec.Meta(min_length=1)]
    max_completion_tokens: _Tokens | None = None
    """Preferred to `max_tokens`, its older name, when both are there."""
    logprobs: bool | None = None
    top_logprobs: Annotated[int, msgspec.Meta(ge=0)] | None = None
    add_generation_prompt: bool | None = None
    continue_final_message: bool | None = None


def plain_messages(messages: list[Message]) -> list[dict[str, Any]]:
    """Messages as chat templates take them: role, content and, where given, name.

    Text parts are joined with line feeds. Raises `InvalidRequest` for a message without
    content and `UnsupportedFeature` for what is not text.
    """
    return [_plain(message, f"messages[{at}]") for at, message in enumerate(messages)]


def _plain(message: Message, where: str) -> dict[str, Any]:
    if message.role in ("tool", "function"):
        raise UnsupportedFeature(
            f"{where}: tool results are not supported by this server", param=f"{where}.role"
        )
    for name in ("audio", "function_call", "tool_calls"):
        if bytes(getattr(message, name)) not in (b"", b"null", b"[]"):
            raise UnsupportedFeature(
                f"{where}: {name} is not supported by this server",
                param=f"{where}.{name}",
                fix="Leave it out.",
            )
    # "developer" is OpenAI's newer word for the same role; templates know "system".
    plain: dict[str, Any] = {
        "role": "system" if message.role == "developer" else message.role,
        "content": _content(message, where),
    }
    if message.name is not None:
        plain["name"] = message.name
    return plain


def _content(message: Message, where: str) -> str:
    content = message.content
    if isinstance(content, str):
        return content
    if content is None:
        raise InvalidRequest(f"{where}: content is missing", param=f"{where}.content")
    texts: list[str] = []
    for at, part in enumerate(content):
        place = f"{where}.content[{at}]"
        if part.type != "text":
            raise UnsupportedFeature(
                f"{place}: only parts of type text are supported by this server",
                param=f"{place}.type",
            )
        if part.text is None:
            raise InvalidRequest(f"{place}: text is missing", param=f"{place}.text")
        texts.append(part.text)
    return "\n".join(texts)
