"""What the two endpoints have in common: the interface of a dialect, and fragments of events.

A stream's events differ in little but their text. The rest is rendered once per choice, so that a
token costs one JSON string and one concatenation.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import msgspec

from steelyard.contract import FinishReason, TokenLogprobs, Usage
from steelyard.gateway.generation.order import Ask, Order, OrderedChoice

__all__ = [
    "ChoiceEvents",
    "CollectedChoice",
    "Dialect",
    "Fragments",
    "Logprobs",
    "UsageBody",
    "event_head",
    "json_text",
    "usage_body",
    "usage_event",
    "wants_usage",
]


class PromptTokensDetails(msgspec.Struct):
    """Of `usage`."""

    cached_tokens: int


class UsageBody(msgspec.Struct):
    """`usage`, as OpenAI writes it."""

    prompt_tokens: int
    completion_tokens: int
    total_tokens: int
    prompt_tokens_details: PromptTokensDetails


def usage_body(usage: Usage) -> UsageBody:
    """`usage` for an answer."""
    return UsageBody(
        usage.prompt_tokens,
        usage.completion_tokens,
        usage.prompt_tokens + usage.completion_tokens,
        PromptTokensDetails(usage.cached_tokens),
    )


@dataclass(frozen=True, slots=True)
class Logprobs:
    """Of consecutive tokens of one choice."""

    ids: Sequence[int]
    values: Sequence[TokenLogprobs]


@dataclass(frozen=True, slots=True)
class CollectedChoice:
    """A choice that is complete, for an answer that is not streamed."""

    choice: OrderedChoice
    text: str
    finish_reason: FinishReason
    token_ids: Sequence[int]
    logprobs: Logprobs | None


class ChoiceEvents(Protocol):
    """Renders the events of one choice; each result is one or more whole events, or nothing."""

    @property
    def opening(self) -> bytes:
        """What goes before the first text."""
        ...

    def text(self, text: str) -> bytes:
        """An event that carries text and nothing else. The hot path."""
        ...

    def full(
        self,
        text: str,
        finish_reason: FinishReason | None,
        token_ids: Sequence[int] | None,
        logprobs: Logprobs | None,
    ) -> bytes:
        """An event with everything; None leaves a part out."""
        ...


class Dialect(Protocol):
    """One endpoint's words."""

    @property
    def id_prefix(self) -> str:
        """Of response ids."""
        ...

    def read(self, body: bytes) -> Ask:
        """Raises `InvalidRequest` or `UnsupportedFeature`."""
        ...

    def events(self, order: Order, choice: OrderedChoice) -> ChoiceEvents:
        """A fresh renderer for one choice."""
        ...

    def usage_event(self, order: Order, usage: Usage) -> bytes:
        """The event that reports the usage of the whole stream."""
        ...

    def answer(self, order: Order, choices: Sequence[CollectedChoice], usage: Usage) -> bytes:
        """The whole answer as JSON."""
        ...


class Fragments:
    """The constant parts of one choice's events.

    before "text" after
    before "text" to_logprobs … to_finish … extras end
    """

    __slots__ = ("_after", "_before", "_end", "_to_finish", "_to_logprobs")

    def __init__(
        self, order: Order, kind: str, index: int, open_text: str, close_text: str
    ) -> None:
        end = '],"usage":null}' if wants_usage(order) else "]}"
        self._before = event_head(order, kind) + f'[{{"index":{index},{open_text}'.encode()
        self._to_logprobs = f'{close_text},"logprobs":'.encode()
        self._to_finish = b',"finish_reason":'
        self._end = f"}}{end}\n\n".encode()
        self._after = self._to_logprobs + b"null" + self._to_finish + b"null" + self._end

    def text(self, text: str) -> bytes:
        """An event with text alone."""
        return b"".join((self._before, json_text(text), self._after))

    def full(
        self, text: str, finish_reason: FinishReason | None, logprobs: bytes, extras: bytes = b""
    ) -> bytes:
        """An event with a JSON value for `logprobs` and further members (`,"key":value`)."""
        finish = b'"%b"' % finish_reason.encode() if finish_reason is not None else b"null"
        return b"".join(
            (
                self._before,
                json_text(text),
                self._to_logprobs,
                logprobs,
                self._to_finish,
                finish,
                extras,
                self._end,
            )
        )


def event_head(order: Order, kind: str) -> bytes:
    """The beginning of every event of a stream, up to the value of `choices`."""
    model = msgspec.json.encode(order.served.name)
    return b'data: {"id":"%b","object":"%b","created":%d,"model":%b,"choices":' % (
        order.response_id.encode(),
        kind.encode(),
        order.created,
        model,
    )


def usage_event(order: Order, kind: str, usage: Usage) -> bytes:
    """An event without choices."""
    body = msgspec.json.encode(usage_body(usage))
    return event_head(order, kind) + b'[],"usage":%b}\n\n' % body


def wants_usage(order: Order) -> bool:
    """True when the stream ends with its usage; its other events then say null, as OpenAI's do."""
    options = order.ask.fields.stream_options
    return options is not None and bool(options.include_usage)


def json_text(text: str) -> bytes:
    """A JSON string that no client can cut in two.

    JSON may hold U+0085, U+2028 and U+2029 as they are, but clients that split a stream with
    Python's `str.splitlines` take them for line ends.
    """
    encoded = _encode(text)
    if not text.isascii():
        for raw, escaped in _LINE_ENDS:
            if raw in encoded:
                encoded = encoded.replace(raw, escaped)
    return encoded


_encode = msgspec.json.Encoder().encode
_LINE_ENDS = (
    (b"\xe2\x80\xa8", b"\\u2028"),
    (b"\xe2\x80\xa9", b"\\u2029"),
    (b"\xc2\x85", b"\\u0085"),
)
