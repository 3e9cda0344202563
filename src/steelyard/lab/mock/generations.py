"""One generation on its way to the client: turns batches of tokens into bytes and truth.

A `Sink` for `serving`. Streams are sent event by event, complete answers at their last token.
Plants the faults that happen after the head of the answer; the others are refusals (`server`).
"""

from typing import Protocol

from steelyard.lab.mock.answers import render_answer, render_stream_head
from steelyard.lab.mock.config import MockConfig
from steelyard.lab.mock.connections import Connection
from steelyard.lab.mock.plans import Plan
from steelyard.lab.mock.rendering import DONE, Rendering, Usage
from steelyard.lab.mock.requests import MockRequest
from steelyard.lab.mock.serving import Batch
from steelyard.lab.mock.text import MockText
from steelyard.lab.mock.timers import NS_PER_MS, Timers
from steelyard.lab.mock.timing_error import TimingError
from steelyard.lab.mock.truth import RequestTruth

__all__ = ["Generation", "Studio"]


class Studio(Protocol):
    """What all generations of a server share."""

    @property
    def config(self) -> MockConfig: ...

    @property
    def text(self) -> MockText: ...

    @property
    def timers(self) -> Timers: ...

    @property
    def timing(self) -> TimingError: ...

    def ended(self, generation: "Generation", *, close: bool) -> None:
        """The answer is complete, broken off or pointless. Called once."""
        ...


class Generation:
    """One answer. `take` is called for its tokens, `abandon` when its client is gone."""

    def __init__(
        self,
        studio: Studio,
        connection: Connection,
        *,
        request: MockRequest,
        plan: Plan,
        rendering: Rendering,
        truth: RequestTruth,
        will_close: bool,
    ) -> None:
        self.connection = connection
        self.plan = plan
        self.truth = truth
        self._studio = studio
        self._request = request
        self._rendering = rendering
        self._will_close = will_close
        self._is_over = False
        self._pieces: list[bytes] = []  # of complete answers

    def begin(self) -> None:
        """Schedule what a stream says before its first token."""
        if not self._request.is_stream:
            return
        config, timers = self._studio.config, self._studio.timers
        arrived_ns = self.truth.arrived_ns
        if config.role_chunk_ms is not None and self._request.endpoint == "chat":
            timers.at(arrived_ns + round(config.role_chunk_ms * NS_PER_MS), _on_role_due, self)
        if config.comment_ms is not None:
            timers.at(arrived_ns + round(config.comment_ms * NS_PER_MS), _on_comment_due, self)

    def take(self, batch: Batch) -> None:
        """`Sink`: tokens exist; send them."""
        if self._is_over:
            return
        if self._request.is_stream:
            self._stream(batch)
        else:
            self._collect(batch)

    def abandon(self, outcome: str) -> None:
        """Nobody reads any more, or the server stops."""
        if not self._is_over:
            self._end(outcome, self._studio.timers.now_ns(), close=True)

    def send_role(self) -> None:
        """The event with the role alone; too late once tokens were sent."""
        if not self._is_over and not self.truth.sent_ns:
            self._send_events(self._rendering.role_event())

    def send_comment(self, now_ns: int) -> None:
        """A sign of life, again and again until the first token."""
        if self._is_over or self.truth.sent_ns:
            return
        self._send_events(b": still here\n\n")
        wait_ns = round((self._studio.config.comment_ms or 0) * NS_PER_MS)
        self._studio.timers.at(now_ns + wait_ns, _on_comment_due, self)

    def _stream(self, batch: Batch) -> None:
        plan = self.plan
        is_fault_due = batch.first + batch.count > plan.fault_tokens >= batch.first
        if is_fault_due and plan.fault in ("reset", "truncate"):
            self._break_off(plan.fault)
            return
        events = self._events(batch)
        if is_fault_due and plan.fault == "malformed":
            events = events[: len(events) // 2].rstrip(b"\n") + b"\n\n"
        if batch.is_last:
            events += self._closing_events()
        sent_ns = self._send_events(events, is_last=batch.is_last)
        if self._is_over:  # sending found that the client is gone
            return
        self._note(batch, sent_ns)
        if batch.is_last:
            self._end(_outcome(plan), sent_ns, close=self._will_close)

    def _collect(self, batch: Batch) -> None:
        plan = self.plan
        for position in range(batch.first, batch.first + batch.count):
            self._pieces.append(self._piece(position))
        self.truth.scheduled_ns += [batch.due_ns - self.truth.arrived_ns] * batch.count
        if not batch.is_last:
            return
        if plan.fault in ("reset", "truncate"):
            self._break_off(plan.fault)
            return
        body = self._complete_body()
        self._send(render_answer(200, body, headers=self._headers(), close=self._will_close))
        sent_ns = self._studio.timers.now_ns()
        self.truth.sent_ns = [sent_ns - self.truth.arrived_ns] * plan.output_tokens
        self.truth.event_tokens = [plan.output_tokens]
        self._studio.timing.record(max(sent_ns - batch.due_ns, 0), 1)
        self._end(_outcome(plan), sent_ns, close=self._will_close)

    def _events(self, batch: Batch) -> bytes:
        """The batch as one event, or as two where reasoning ends inside it."""
        border = max(min(self.plan.reasoning_tokens - batch.first, batch.count), 0)
        events = b""
        if border:
            events += self._event(batch.first, border, is_reasoning=True)
        if border < batch.count:
            events += self._event(batch.first + border, batch.count - border, is_reasoning=False)
        share = self._studio.config.empty_chunk_share
        if share and self.plan.generator.random() < share:
            events = self._rendering.text_event(b"") + events
        return events

    def _event(self, first: int, count: int, *, is_reasoning: bool) -> bytes:
        request, tokens = self._request, self.plan.tokens
        positions = range(first, first + count)
        text = b"".join([self._piece(position) for position in positions])
        ids = [tokens[position] for position in positions] if request.wants_token_ids else ()
        usage = self._usage(first + count) if request.wants_running_usage else None
        if is_reasoning:
            return self._rendering.reasoning_event(text, ids=ids, usage=usage)
        return self._rendering.text_event(text, ids=ids, usage=usage)

    def _piece(self, position: int) -> bytes:
        plan = self.plan
        if plan.cut_pieces is not None:
            return plan.cut_pieces[position]
        # Content starts anew behind the reasoning, so that its words are whole.
        start = plan.reasoning_tokens if position >= plan.reasoning_tokens else 0
        return self._studio.text.piece(plan.tokens[position], position - start)

    def _closing_events(self) -> bytes:
        events = self._rendering.finish_event(self.plan.finish_reason)
        mode = self._studio.config.usage
        if mode == "always" or (mode == "asked" and self._request.wants_usage):
            self.truth.reported = self._usage(self.plan.output_tokens)
            events += self._rendering.usage_event(self.truth.reported)
        return events + DONE

    def _complete_body(self) -> bytes:
        plan, border = self.plan, self.plan.reasoning_tokens
        usage = None if self._studio.config.usage == "never" else self._usage(plan.output_tokens)
        self.truth.reported = usage
        ids = [plan.tokens[i] for i in range(plan.output_tokens)]
        body = self._rendering.complete(
            b"".join(self._pieces[border:]).decode(),
            b"".join(self._pieces[:border]).decode(),
            reason=plan.finish_reason,
            ids=ids if self._request.wants_token_ids else (),
            usage=usage,
        )
        return body[: len(body) // 2] if plan.fault == "malformed" else body

    def _usage(self, output_tokens: int) -> Usage:
        plan = self.plan
        wrong = 1 if plan.fault == "usage" else 0
        reasoning_tokens = min(plan.reasoning_tokens, output_tokens)
        return Usage(plan.prompt_tokens, output_tokens + wrong, reasoning_tokens)

    def _send_events(self, events: bytes, *, is_last: bool = False) -> int:
        """Send events as one chunk of the body; the time when that was done."""
        data = b"%x\r\n%b\r\n" % (len(events), events)
        if is_last:
            data += b"0\r\n\r\n"
        return self._send_data(data)

    def _send_data(self, data: bytes) -> int:
        """Send bytes of a stream's body, behind its head; the time when that was done."""
        if self.truth.head_ns is None:
            data = render_stream_head(self._headers(), close=self._will_close) + data
        self._send(data)
        return self._studio.timers.now_ns()

    def _send(self, data: bytes) -> None:
        self.connection.send(data)
        if self.truth.head_ns is None:
            self.truth.head_ns = self._studio.timers.now_ns()

    def _headers(self) -> str:
        return f"x-request-id: {self.truth.request_id}\r\n"

    def _note(self, batch: Batch, sent_ns: int) -> None:
        truth, count = self.truth, batch.count
        truth.scheduled_ns += [batch.due_ns - truth.arrived_ns] * count
        truth.sent_ns += [sent_ns - truth.arrived_ns] * count
        truth.event_tokens.append(count)
        if self.connection.unsent_bytes:
            truth.blocked_tokens += count
        self._studio.timing.record(max(sent_ns - batch.due_ns, 0), count)

    def _break_off(self, fault: str) -> None:
        """A planted break: a reset, or an answer that ends too early without a word."""
        close = self._will_close
        if fault == "reset":
            self._end(fault, self._studio.timers.now_ns(), close=False)
            self.connection.reset()
            return
        if self._request.is_stream:
            self._send_data(b"0\r\n\r\n")
        else:
            close = True
            body = self._complete_body()
            whole = render_answer(200, body, headers=self._headers(), close=True)
            self._send(whole[: -len(body) // 2])
        self._end(fault, self._studio.timers.now_ns(), close=close)

    def _end(self, outcome: str, ended_ns: int, *, close: bool) -> None:
        if self._is_over:
            return
        self._is_over = True
        truth, plan, words = self.truth, self.plan, self._studio.text.words
        truth.outcome = outcome
        truth.ended_ns = ended_ns
        truth.output_tokens = len(truth.sent_ns)
        truth.reasoning_tokens = min(plan.reasoning_tokens, truth.output_tokens)
        answer_tokens = truth.output_tokens - truth.reasoning_tokens
        truth.client_tokens = words(truth.reasoning_tokens) + words(answer_tokens)
        if outcome in _COMPLETE:
            truth.finish_reason = plan.finish_reason
        self._studio.ended(self, close=close)


_COMPLETE = frozenset({"finished", "stall", "malformed", "usage"})


def _outcome(plan: Plan) -> str:
    return plan.fault or "finished"


def _on_role_due(generation: Generation, due_ns: int) -> None:
    generation.send_role()


def _on_comment_due(generation: Generation, due_ns: int) -> None:
    generation.send_comment(due_ns)
