"""What a client asks of the mock: the bodies of both endpoints, reduced to what it acts upon.

Reads JSON and refuses what would change the meaning of the answer (`n`, several prompts); other
parameters of the API are accepted and have no effect.
"""

import hashlib
from typing import Any, Literal

import msgspec

from steelyard.lab.mock.answers import Refusal
from steelyard.lab.mock.text import MockText

__all__ = ["Endpoint", "MockRequest", "read_request"]

Endpoint = Literal["chat", "completion"]


class MockRequest(msgspec.Struct, frozen=True, kw_only=True):
    """One request, understood."""

    endpoint: Endpoint
    prompt: bytes
    """Identifies the prompt: a digest of its words or ids."""
    prompt_tokens: int
    seed: int
    max_tokens: int | None
    """None: the client named no limit."""
    is_stream: bool
    wants_usage: bool
    wants_running_usage: bool
    wants_token_ids: bool
    ignore_eos: bool
    stop: tuple[str, ...]


def read_request(endpoint: Endpoint, body: bytes, text: MockText) -> MockRequest:
    """Understand a body. Raises `Refusal` with status 400."""
    try:
        asked = _DECODERS[endpoint].decode(body)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise Refusal(400, f"The body cannot be used: {error}", code="invalid_value") from None
    if asked.n not in (None, 1):
        raise Refusal(400, "The mock gives one answer per request.", param="n")
    prompt, prompt_tokens = asked.read_prompt(text)
    limit = asked.max_tokens if asked.max_completion_tokens is None else asked.max_completion_tokens
    if limit is not None and limit < 1:
        raise Refusal(400, "max_tokens must be at least 1.", param="max_tokens")
    options = asked.stream_options or _StreamOptions()
    is_greedy = asked.temperature == 0
    return MockRequest(
        endpoint=endpoint,
        prompt=prompt,
        prompt_tokens=prompt_tokens,
        seed=0 if is_greedy else asked.seed or 0,
        max_tokens=limit,
        is_stream=bool(asked.stream),
        wants_usage=bool(options.include_usage),
        wants_running_usage=bool(options.continuous_usage_stats),
        wants_token_ids=bool(asked.return_token_ids),
        ignore_eos=bool(asked.ignore_eos),
        stop=_stop(asked.stop),
    )


class _StreamOptions(msgspec.Struct):
    include_usage: bool | None = None
    continuous_usage_stats: bool | None = None


class _Asked(msgspec.Struct, kw_only=True):
    """What both endpoints share."""

    max_tokens: int | None = None
    max_completion_tokens: int | None = None
    stream: bool | None = None
    stream_options: _StreamOptions | None = None
    ignore_eos: bool | None = None
    return_token_ids: bool | None = None
    stop: str | list[str] | None = None
    seed: int | None = None
    temperature: float | None = None
    n: int | None = None

    def read_prompt(self, text: MockText) -> tuple[bytes, int]:
        """Digest and tokens of the prompt."""
        raise NotImplementedError


class _ChatBody(_Asked, kw_only=True):
    messages: list[dict[str, Any]]

    def read_prompt(self, text: MockText) -> tuple[bytes, int]:
        if not self.messages:
            raise Refusal(400, "There must be at least one message.", param="messages")
        words = " ".join(_content(message) for message in self.messages)
        return _digest(words), text.prompt_tokens(words)


class _CompletionBody(_Asked, kw_only=True):
    prompt: str | list[str | int | list[int]]

    def read_prompt(self, text: MockText) -> tuple[bytes, int]:
        prompt: Any = self.prompt
        if isinstance(prompt, list) and len(prompt) == 1 and not isinstance(prompt[0], int):
            prompt = prompt[0]
        if isinstance(prompt, str):
            return _digest(prompt), text.prompt_tokens(prompt)
        if not prompt or not all(isinstance(token_id, int) for token_id in prompt):
            raise Refusal(400, "Give one prompt, as text or token ids.", param="prompt")
        return _digest(" ".join(map(str, prompt))), len(prompt)


_DECODERS: dict[Endpoint, msgspec.json.Decoder[_ChatBody] | msgspec.json.Decoder[_CompletionBody]]
_DECODERS = {
    "chat": msgspec.json.Decoder(_ChatBody),
    "completion": msgspec.json.Decoder(_CompletionBody),
}


def _content(message: dict[str, Any]) -> str:
    content = message.get("content")
    if isinstance(content, list):
        parts = (part.get("text") for part in content if isinstance(part, dict))
        return " ".join(part for part in parts if isinstance(part, str))
    return content if isinstance(content, str) else ""


def _digest(prompt: str) -> bytes:
    return hashlib.blake2b(prompt.encode("utf-8", "surrogatepass"), digest_size=8).digest()


def _stop(stop: str | list[str] | None) -> tuple[str, ...]:
    listed = [stop] if isinstance(stop, str) else stop or []
    return tuple(text for text in listed if text)
