"""One shape for answers of both endpoints, whole or streamed, so that checks can compare them.

Values only; `reading` makes them of what a server sent.
"""

from dataclasses import dataclass

from steelyard.lab.verify.endpoints import Endpoint
from steelyard.lab.verify.exchange import Exchange
from steelyard.lab.verify.schemas import ChatAnswer, ChatChoice, TextAnswer, TextChoice, UsageBody

__all__ = ["Answer", "Choice", "Chunk", "Malformed", "StreamedAnswer", "Token"]


class Malformed(Exception):
    """An answer that clients cannot read; the message says where and why."""


@dataclass(frozen=True, slots=True)
class Token:
    """One token with its log-probability."""

    text: str
    logprob: float | None
    """None where the server has none, as for the first token of a prompt."""
    top: tuple[tuple[str, float], ...]
    """The most likely tokens, in the server's order."""
    raw: bytes | None = None
    """The token's bytes; None when the server does not tell them."""
    id: int | None = None
    offset: int | None = None
    """Where it begins in the choice's text; None when the server does not tell it."""


@dataclass(frozen=True, slots=True)
class Choice:
    """One choice, complete."""

    index: int
    content: str | None
    """None when the server sent null."""
    finish_reason: str | None
    reasoning: str = ""
    tokens: tuple[Token, ...] | None = None
    """None without log-probabilities."""
    has_chat_logprobs: bool = False
    """True when log-probabilities came in the chat endpoint's shape."""
    token_ids: tuple[int, ...] | None = None
    prompt_token_ids: tuple[int, ...] | None = None
    role: str | None = None
    tool_calls: tuple[tuple[str, str], ...] = ()
    """Name and arguments of each."""

    @property
    def text(self) -> str:
        """All the model said, thoughts first."""
        return self.reasoning + (self.content or "")


@dataclass(frozen=True, slots=True)
class Answer:
    """A whole answer, or the sum of a stream."""

    endpoint: Endpoint
    exchange: Exchange
    id: str
    object: str
    created: int
    model: str
    choices: tuple[Choice, ...]
    """By index."""
    usage: UsageBody | None

    @property
    def choice(self) -> Choice:
        """The first choice. Raises `Malformed` when there is none."""
        if not self.choices:
            raise Malformed("choices is empty")
        return self.choices[0]

    @property
    def text(self) -> str:
        return self.choice.text

    @property
    def finish_reason(self) -> str | None:
        return self.choice.finish_reason

    @property
    def counts(self) -> UsageBody:
        """The usage. Raises `Malformed` when there is none."""
        if self.usage is None:
            raise Malformed("usage is missing")
        return self.usage


@dataclass(frozen=True, slots=True)
class Chunk:
    """One event of a stream, decoded."""

    body: ChatAnswer | TextAnswer
    at_s: float

    @property
    def says(self) -> str:
        """Text of all choices."""
        return "".join(_said(choice) for choice in self.body.choices)


@dataclass(frozen=True, slots=True)
class StreamedAnswer(Answer):
    """The sum of a stream, and the stream itself."""

    chunks: tuple[Chunk, ...] = ()
    faults: tuple[str, ...] = ()
    """Breaches of the event stream's format."""
    ends_with_done: bool = False
    after_done: tuple[str, ...] = ()
    """What came after `[DONE]`."""


def _said(choice: ChatChoice | TextChoice) -> str:
    if isinstance(choice, TextChoice):
        return choice.text
    message = choice.message or choice.delta
    if message is None:
        return ""
    return (message.reasoning or message.reasoning_content or "") + (message.content or "")
