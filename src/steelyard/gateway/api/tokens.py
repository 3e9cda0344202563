"""`/tokenize` and `/detokenize`, in vLLM's shapes."""

from typing import Any

import msgspec

from steelyard.contract.errors import InvalidRequest
from steelyard.gateway.api.chat import Message, plain_messages

__all__ = ["DetokenizeAnswer", "DetokenizeRequest", "TokenizeAnswer", "TokenizeRequest"]


class TokenizeRequest(msgspec.Struct, kw_only=True):
    """Either `prompt` or `messages`."""

    model: str | None = None
    prompt: str | None = None
    messages: list[Message] | None = None
    add_special_tokens: bool | None = None
    """Only for `prompt`; null means what a completion would do."""
    add_generation_prompt: bool | None = None
    continue_final_message: bool | None = None
    return_token_strs: bool | None = None

    def text_or_messages(self) -> str | list[dict[str, Any]]:
        """Raises `InvalidRequest` unless exactly one of the two is given."""
        if (self.prompt is None) == (self.messages is None):
            raise InvalidRequest("give either prompt or messages", param="prompt")
        if self.prompt is not None:
            return self.prompt
        assert self.messages is not None
        return plain_messages(self.messages)


class TokenizeAnswer(msgspec.Struct):
    count: int
    max_model_len: int
    tokens: list[int]
    token_strs: list[str] | None = None


class DetokenizeRequest(msgspec.Struct, kw_only=True):
    """`tokens` are ids of the model's vocabulary."""

    model: str | None = None
    tokens: list[int]


class DetokenizeAnswer(msgspec.Struct):
    prompt: str
