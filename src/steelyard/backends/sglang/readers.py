"""What `/generate` answers: events of a stream as additions to it.

Depending on a flag of the server, an event holds what is new or everything so far; how many tokens
there are in all is said with each, so both are read the same way.
"""

from typing import Any

import msgspec

from steelyard.backends.http.dialect import Delta
from steelyard.backends.http.failures import error_of_event
from steelyard.backends.remote.readers import finish_of
from steelyard.contract import TokenLogprobs, Usage
from steelyard.contract.errors import EngineFailed

__all__ = ["SglangReader"]

_DONE = b"[DONE]"

_Logprob = tuple[float | None, int, Any]
"""Value, token id, and its text or null."""


class _Finish(msgspec.Struct):
    type: str
    message: str = ""
    status_code: int | None = None


class _Meta(msgspec.Struct):
    completion_tokens: int
    prompt_tokens: int = 0
    cached_tokens: int = 0
    finish_reason: _Finish | None = None
    output_token_logprobs: list[_Logprob] | None = None
    output_top_logprobs: list[list[_Logprob] | None] | None = None


class _Event(msgspec.Struct):
    output_ids: list[int] = []
    meta_info: _Meta | None = None
    error: Any = None


class SglangReader:
    """`http.dialect.Reader`. The last event carries tokens, reason and usage together."""

    def __init__(self, logprobs: int | None) -> None:
        """`logprobs`: how many alternatives were asked for; None: no log-probabilities."""
        self._logprobs = logprobs
        self._seen = 0

    def read(self, payload: bytes) -> Delta | None:
        """See `http.dialect.Reader`."""
        if payload == _DONE:
            return None
        try:
            event = _EVENTS.decode(payload)
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
            raise EngineFailed(f"an event of the endpoint cannot be read: {error}") from error
        if event.error is not None:
            raise error_of_event(event.error)
        if event.meta_info is None:
            return None
        return self._delta(event.output_ids, event.meta_info)

    def end(self) -> Delta | None:
        """Nothing is held back."""
        return None

    def _delta(self, ids: list[int], meta: _Meta) -> Delta | None:
        finish = meta.finish_reason
        if finish is not None and finish.type == "abort":
            raise error_of_event({"message": finish.message, "code": finish.status_code})
        new = meta.completion_tokens - self._seen
        if new < 0 or len(ids) not in (new, meta.completion_tokens):
            raise EngineFailed("the endpoint lost or repeated a token of this stream")
        self._seen = meta.completion_tokens
        reason = finish_of(None if finish is None else finish.type)
        if not new and reason is None:
            return None
        return Delta(
            tuple(ids[len(ids) - new :]),
            None if self._logprobs is None else self._values(meta, new, self._logprobs),
            reason,
            Usage(meta.prompt_tokens, meta.completion_tokens, meta.cached_tokens),
        )

    def _values(self, meta: _Meta, new: int, count: int) -> tuple[TokenLogprobs, ...]:
        drawn = (meta.output_token_logprobs or [])[-new:] if new else []
        tops = (meta.output_top_logprobs or [])[-new:] if new and count else [None] * len(drawn)
        return tuple(
            TokenLogprobs(
                value or 0.0,
                tuple(token_id for _, token_id, _ in (top or [])[:count]),
                tuple(chance or 0.0 for chance, _, _ in (top or [])[:count]),
            )
            for (value, _, _), top in zip(drawn, tops, strict=False)
        )


_EVENTS = msgspec.json.Decoder(_Event)
