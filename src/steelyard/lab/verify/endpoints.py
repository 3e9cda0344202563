"""The two endpoints that produce text: their paths, schemas and dialects of the same wishes."""

import enum
from collections.abc import Sequence
from typing import Any

from steelyard.lab.verify.schemas import ChatAnswer, TextAnswer

__all__ = ["Endpoint", "Messages", "Subject", "request_body"]

Messages = Sequence[dict[str, Any]]

Subject = str | Sequence[int] | Sequence[str] | Messages
"""What to ask about: text; token ids or several texts (text completions); messages (chat)."""


class Endpoint(enum.Enum):
    """A way to have text produced."""

    CHAT = "chat"
    TEXT = "text"

    @property
    def path(self) -> str:
        return "/v1/chat/completions" if self is Endpoint.CHAT else "/v1/completions"

    @property
    def schema(self) -> type[ChatAnswer] | type[TextAnswer]:
        return ChatAnswer if self is Endpoint.CHAT else TextAnswer

    @property
    def kind(self) -> str:
        """`object` of a whole answer."""
        return "chat.completion" if self is Endpoint.CHAT else "text_completion"

    @property
    def chunk_kind(self) -> str:
        """`object` of a chunk."""
        return "chat.completion.chunk" if self is Endpoint.CHAT else "text_completion"

    def logprobs(self, top: int) -> dict[str, Any]:
        """The parameters that ask for the `top` most likely tokens of each position."""
        if self is Endpoint.CHAT:
            return {"logprobs": True, "top_logprobs": top}
        return {"logprobs": top}


def request_body(
    endpoint: Endpoint, model: str, subject: Subject, parameters: dict[str, Any]
) -> dict[str, Any]:
    """A body for `endpoint`; parameters that are None are left out."""
    asked: dict[str, Any]
    if endpoint is Endpoint.TEXT:
        asked = {"prompt": subject if isinstance(subject, str) else list(subject)}
    elif isinstance(subject, str):
        asked = {"messages": [{"role": "user", "content": subject}]}
    else:
        asked = {"messages": list(subject)}
    given = {name: value for name, value in parameters.items() if value is not None}
    return {"model": model, **asked, **given}
