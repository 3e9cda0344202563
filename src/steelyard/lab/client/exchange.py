"""One request on its way: when what happened, and what came back, until it is put on record.

Knows completions, not sockets: `connection` feeds it, `recorder` keeps it.
"""

import asyncio
import math
from collections.abc import Callable

import msgspec

from steelyard.lab.client.chunks import Choice, Usage, decode_chunk, error_text
from steelyard.lab.outcomes import EventKind, Outcome, RequestFlag

__all__ = ["Exchange"]

_DONE = b"[DONE]"
_UNKNOWN = -1


class Exchange:
    """Mutable while the request runs; owned by one connection at a time.

    All times are seconds of the monotonic clock; NaN means that it has not happened.
    """

    __slots__ = (
        "cancel",
        "chunks",
        "comments",
        "counts",
        "dispatched_s",
        "done",
        "end_s",
        "finish_reason",
        "first_byte_s",
        "flags",
        "http_status",
        "is_kept",
        "kinds",
        "last_byte_s",
        "last_event_s",
        "message",
        "outcome",
        "output_asked",
        "prompt_asked",
        "released_s",
        "retry_after_s",
        "saw_done",
        "scheduled_s",
        "sent_s",
        "server",
        "session",
        "texts",
        "times",
        "turn",
        "usage",
        "widths",
    )

    def __init__(self, *, session: int, turn: int, scheduled_s: float) -> None:
        nan = math.nan
        self.session = session
        self.turn = turn
        self.prompt_asked = 0
        self.output_asked = 0
        self.is_kept = False
        """Whether `texts` are kept: for the next turn, or to count their tokens again."""
        self.scheduled_s = scheduled_s
        self.dispatched_s = nan
        """The client turned to it, with the body ready."""
        self.released_s = nan
        """It had its place under the concurrency cap."""
        self.sent_s = nan
        """It was written to an open connection."""
        self.first_byte_s = nan
        self.last_byte_s = nan
        self.last_event_s = nan
        """The latest event that had any choices, with tokens or without."""
        self.end_s = nan
        self.outcome: Outcome | None = None
        """None while it runs."""
        self.http_status = 0
        self.retry_after_s = nan
        self.server = ""
        """The `Server` header of the response."""
        self.message = ""
        self.flags = RequestFlag(0)
        self.finish_reason = ""
        self.saw_done = False
        self.usage: Usage | None = None
        self.comments = 0
        self.chunks = 0
        """Events that brought text or tokens."""
        self.times: list[float] = []
        """Of those events."""
        self.counts: list[int] = []
        """Tokens of those events, as the server says; -1 where it does not."""
        self.widths: list[int] = []
        """Characters of those events."""
        self.kinds: list[EventKind] = []
        self.texts: list[str] = []
        """Of those events, when they are kept."""
        self.cancel: Callable[[], None] = _nothing
        """Closes the connection it is on; the server sees that nobody waits any more."""
        self.done: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    @property
    def is_complete(self) -> bool:
        return self.outcome is Outcome.COMPLETE

    @property
    def outcome_text(self) -> str:
        """For messages: the outcome and what was said about it."""
        label = "running" if self.outcome is None else self.outcome.label
        return f"{label} ({self.message})" if self.message else label

    @property
    def answer_text(self) -> str:
        """What the next turn repeats: without reasoning. Empty when it was not kept."""
        pairs = zip(self.texts, self.kinds, strict=False)
        return "".join(text for text, kind in pairs if kind is EventKind.ANSWER)

    @property
    def full_text(self) -> str:
        """Reasoning included. Empty when it was not kept."""
        return "".join(self.texts)

    def take_event(self, data: bytes, now_s: float) -> None:
        """The data of one server-sent event. May end the exchange with a failure."""
        if data == _DONE:
            self.saw_done = True
            return
        try:
            chunk = decode_chunk(data)
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
            self.fail(Outcome.MALFORMED, now_s, f"an event cannot be read: {error}")
            return
        if chunk.error is not None:
            self.fail(Outcome.STREAM_ERROR, now_s, error_text(chunk.error))
            return
        if chunk.usage is not None:
            self.usage = chunk.usage
        for choice in chunk.choices:
            self.last_event_s = now_s
            self._take_choice(choice, now_s)

    def take_answer(self, body: bytes, now_s: float) -> None:
        """The body of a whole answer that was not streamed."""
        self.flags |= RequestFlag.NOT_STREAMED
        try:
            answer = decode_chunk(body)
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
            self.fail(Outcome.MALFORMED, now_s, f"the answer cannot be read: {error}")
            return
        if answer.error is not None:
            self.fail(Outcome.SERVER_ERROR, now_s, error_text(answer.error))
            return
        self.usage = answer.usage
        self.last_event_s = now_s
        for choice in answer.choices:
            choice.delta = choice.message
            self._take_choice(choice, now_s)
        self.saw_done = True

    def finish(self, now_s: float) -> None:
        """The response is complete; decides whether the answer is. Nothing when it has ended."""
        if self.outcome is not None:
            return
        if not self.finish_reason and not self.saw_done:
            self.fail(Outcome.TRUNCATED, now_s, "the stream ended without a finish reason")
        elif not self.times:
            self.fail(Outcome.EMPTY, now_s, "the answer has no token")
        else:
            self._end(Outcome.COMPLETE, now_s)

    def fail(self, outcome: Outcome, now_s: float, message: str) -> None:
        """It ended otherwise. Nothing when it has ended before."""
        if self.outcome is None:
            self.message = message
            self._end(outcome, now_s)

    def _end(self, outcome: Outcome, now_s: float) -> None:
        self.outcome = outcome
        self.end_s = now_s
        if not self.done.done():
            self.done.set_result(None)

    def _take_choice(self, choice: Choice, now_s: float) -> None:
        delta, text, kind = choice.delta, choice.text, EventKind.ANSWER
        if delta is not None:
            text = delta.content
            if not text and (thought := delta.reasoning_content or delta.reasoning):
                text, kind = thought, EventKind.REASONING
            elif not text and delta.tool_calls:
                text = _tool_text(delta.tool_calls)
        ids = choice.token_ids
        if choice.finish_reason:
            self.finish_reason = choice.finish_reason
        if text or ids:
            self.chunks += 1
            self.times.append(now_s)
            self.counts.append(_UNKNOWN if ids is None else len(ids))
            self.widths.append(len(text) if text else 1)
            self.kinds.append(kind)
            if self.is_kept:
                self.texts.append(text or "")


def _nothing() -> None:
    """What there is to cancel before a request is on a connection."""


def _tool_text(calls: msgspec.Raw) -> str:
    """Something as long as the call's own text; empty for `null` and empty lists."""
    text = bytes(calls)
    return "" if text in (b"null", b"[]") else text.decode(errors="replace")
