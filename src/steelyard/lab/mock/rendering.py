"""JSON of generations, in the words of the two endpoints, streamed or complete.

Events are glued from parts made once per request, because a mock that spends its time on JSON is
late. That is safe: the mock's own texts hold letters and spaces only (`text`).
"""

from collections.abc import Sequence
from typing import Any

import msgspec

from steelyard.lab.mock.requests import Endpoint

__all__ = ["DONE", "Rendering", "Usage"]

DONE = b"data: [DONE]\n\n"


class Usage(msgspec.Struct, frozen=True):
    """Token counts as they are reported: possibly wrong on purpose."""

    prompt_tokens: int
    completion_tokens: int
    reasoning_tokens: int = 0

    def to_json(self) -> dict[str, Any]:
        """In OpenAI's shape."""
        shape: dict[str, Any] = {
            "prompt_tokens": self.prompt_tokens,
            "completion_tokens": self.completion_tokens,
            "total_tokens": self.prompt_tokens + self.completion_tokens,
        }
        if self.reasoning_tokens:
            shape["completion_tokens_details"] = {"reasoning_tokens": self.reasoning_tokens}
        return shape


class Rendering:
    """Writes what one answer says. Events are whole: `data: …` and the empty line."""

    __slots__ = ("_complete_object", "_field", "_id", "_is_chat", "_lead", "_model", "_opening")

    def __init__(
        self, endpoint: Endpoint, *, answer_id: str, created: int, model: str, reasoning_field: str
    ) -> None:
        self._is_chat = endpoint == "chat"
        self._field = reasoning_field
        self._model = model
        kind = "chat.completion" if self._is_chat else "text_completion"
        self._complete_object = {"id": answer_id, "object": kind, "created": created}
        name = msgspec.json.encode(model).decode()
        chunk = "chat.completion.chunk" if self._is_chat else kind
        self._opening = (
            f'data: {{"id":"{answer_id}","object":"{chunk}","created":{created},"model":{name},'
        ).encode()
        choice = b'"choices":[{"index":0,'
        lead = b'"delta":{"content":"' if self._is_chat else b'"text":"'
        self._lead = self._opening + choice + lead

    def text_event(
        self, text: bytes, *, ids: Sequence[int] = (), usage: Usage | None = None
    ) -> bytes:
        """An event with `text`, which may be empty; `usage` counts the answer so far."""
        return self._lead + text + (b'"}' if self._is_chat else b'"') + _ending(ids, usage)

    def reasoning_event(
        self, text: bytes, *, ids: Sequence[int] = (), usage: Usage | None = None
    ) -> bytes:
        """An event with reasoning; chat only."""
        assert self._is_chat, "completions have no reasoning"
        lead = b'%b"choices":[{"index":0,"delta":{"%b":"' % (self._opening, self._field.encode())
        return lead + text + b'"}' + _ending(ids, usage)

    def role_event(self) -> bytes:
        """The event that opens a chat answer, without text."""
        return (
            self._opening
            + b'"choices":[{"index":0,"delta":{"role":"assistant","content":""}'
            + _UNFINISHED
        )

    def finish_event(self, reason: str) -> bytes:
        """The event that names the finish reason, without text."""
        part = b'"delta":{}' if self._is_chat else b'"text":""'
        return b'%b"choices":[{"index":0,%b,"logprobs":null,"finish_reason":"%b"}]}\n\n' % (
            self._opening,
            part,
            reason.encode(),
        )

    def usage_event(self, usage: Usage) -> bytes:
        """The event that reports usage alone."""
        return self._opening + b'"choices":[],' + _usage_member(usage) + b"}\n\n"

    def complete(
        self, text: str, reasoning: str, *, reason: str, ids: Sequence[int], usage: Usage | None
    ) -> bytes:
        """The body of an answer that is not streamed."""
        choice: dict[str, Any] = {"index": 0, "logprobs": None, "finish_reason": reason}
        if self._is_chat:
            message = {"role": "assistant", "content": text}
            choice["message"] = {**message, self._field: reasoning} if reasoning else message
        else:
            choice["text"] = text
        if ids:
            choice["token_ids"] = list(ids)
        body = {**self._complete_object, "model": self._model, "choices": [choice]}
        if usage is not None:
            body["usage"] = usage.to_json()
        return msgspec.json.encode(body)


_UNFINISHED = b',"logprobs":null,"finish_reason":null}]}\n\n'


def _ending(ids: Sequence[int], usage: Usage | None) -> bytes:
    """From the end of the text to the end of the event."""
    if not ids and usage is None:
        return _UNFINISHED
    more = b',"token_ids":%b' % msgspec.json.encode(ids) if ids else b""
    total = b"," + _usage_member(usage) if usage is not None else b""
    return b'%b,"logprobs":null,"finish_reason":null}]%b}\n\n' % (more, total)


def _usage_member(usage: Usage) -> bytes:
    return b'"usage":' + msgspec.json.encode(usage.to_json())
