"""Follows one request at the door, from its header to exactly one end.

The meter reads the clock itself, so callers only say what happened. Conservation
(received = in flight + ended) holds by construction: a meter begins once and ends once.
"""

import functools
from types import TracebackType
from typing import Literal

from steelyard.contract import Clock, FinishReason, Usage
from steelyard.contract.errors import (
    Cancelled,
    DeadlineExceeded,
    InternalError,
    InvalidRequest,
    RetryLater,
    SteelyardError,
)
from steelyard.telemetry._instruments import Instruments

__all__ = [
    "CancelCause",
    "ModelSeries",
    "ModelSpread",
    "RequestMeter",
    "StreamMeter",
    "TenantSeries",
]

CancelCause = Literal["disconnect", "deadline", "shutdown"]


class ModelSeries:
    """The series of one model, looked up once so that a token costs additions only."""

    def __init__(self, instruments: Instruments, model: str) -> None:
        self._instruments = instruments
        self._model = model
        self.received = instruments.counter("steelyard_requests_received_total", model)
        self.in_flight = instruments.gauge("steelyard_requests_in_flight", model)
        self.waiting = instruments.gauge("steelyard_requests_waiting", model)
        self.prompt_tokens = instruments.counter("steelyard_prompt_tokens_total", model)
        self.cached_tokens = instruments.counter("steelyard_cached_tokens_total", model)
        self.output_tokens = instruments.counter("steelyard_output_tokens_total", model)

    @functools.cached_property
    def spread(self) -> "ModelSpread":
        """Made on first use: a name that is not served gets counters, not 140 buckets."""
        return ModelSpread(self._instruments, self._model)

    def ended(self, outcome: str, reason: str) -> None:
        name = "steelyard_requests_ended_total"
        self._instruments.counter(name, self._model, outcome, reason).add()
        self.in_flight.add(-1)


class ModelSpread:
    """The distributions of one model: times in seconds, lengths in tokens."""

    def __init__(self, instruments: Instruments, model: str) -> None:
        self.first_token = instruments.histogram("steelyard_time_to_first_token_seconds", model)
        self.gap = instruments.histogram("steelyard_inter_token_latency_seconds", model)
        self.duration = instruments.histogram("steelyard_request_duration_seconds", model)
        self.queue = instruments.histogram("steelyard_request_queue_seconds", model)
        self.prompt_length = instruments.histogram("steelyard_request_prompt_tokens", model)
        self.output_length = instruments.histogram("steelyard_request_output_tokens", model)


class TenantSeries:
    """The series of one tenant."""

    def __init__(self, instruments: Instruments, tenant: str) -> None:
        self._instruments = instruments
        self._tenant = tenant
        tokens = "steelyard_tenant_tokens_total"
        self.prompt_tokens = instruments.counter(tokens, tenant, "prompt")
        self.cached_tokens = instruments.counter(tokens, tenant, "cached")
        self.output_tokens = instruments.counter(tokens, tenant, "output")

    def ended(self, outcome: str) -> None:
        self._instruments.counter(
            "steelyard_tenant_requests_ended_total", self._tenant, outcome
        ).add()


class RequestMeter:
    """One request. The first end counts; later ones change nothing.

    As a context manager it ends with the error that leaves the block, or as an internal error
    when the block neither ended it nor raised.
    """

    def __init__(self, model: ModelSeries, tenant: TenantSeries, clock: Clock) -> None:
        self._model = model
        self._tenant = tenant
        self._clock = clock
        self._began_s = clock.now()
        self._is_handed_over = False
        self._is_ended = False
        self._has_output = False
        self.output_tokens = 0
        """Tokens sent so far, all choices together; the streams count here."""
        model.received.add()
        model.in_flight.add(1)
        model.waiting.add(1)

    def handed_over(self, prompt_tokens: int) -> None:
        """An engine has taken the request, with all its choices. Only the first call counts."""
        if self._is_handed_over or self._is_ended:
            return
        self._is_handed_over = True
        self._model.waiting.add(-1)
        self._model.spread.queue.observe(self._clock.now() - self._began_s)
        self._model.spread.prompt_length.observe(prompt_tokens)
        self._model.prompt_tokens.add(prompt_tokens)
        self._tenant.prompt_tokens.add(prompt_tokens)

    def stream(self) -> "StreamMeter":
        """A meter for the tokens of one choice."""
        return StreamMeter(self, self._model, self._clock)

    def output_began(self, now_s: float) -> None:
        """The first token of a choice is being sent; the first choice's is the request's."""
        if not self._has_output:
            self._has_output = True
            self._model.spread.first_token.observe(now_s - self._began_s)

    def finished(self, reason: FinishReason | str, usage: Usage) -> None:
        """The answer is complete; `reason` is the (first) choice's finish reason."""
        if self._end("finished", reason):
            self._model.spread.duration.observe(self._clock.now() - self._began_s)
            self._model.spread.output_length.observe(self.output_tokens)
            self._model.cached_tokens.add(usage.cached_tokens)
            self._tenant.cached_tokens.add(usage.cached_tokens)

    def failed(self, error: SteelyardError) -> None:
        """The request ended with `error`: cancelled, rejected or failed, as its class tells."""
        if isinstance(error, Cancelled):
            self._end("cancelled", "disconnect")
        elif isinstance(error, DeadlineExceeded):
            self._end("cancelled", "deadline")
        else:
            self._end("rejected" if self._is_rejection(error) else "failed", error.code)

    def cancelled(self, cause: CancelCause) -> None:
        """The request was given up."""
        self._end("cancelled", cause)

    def __enter__(self) -> "RequestMeter":
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if isinstance(error, SteelyardError):
            self.failed(error)
        elif error is None or isinstance(error, Exception):
            self._end("failed", InternalError.code)
        else:  # the task was cancelled or the generator closed: nobody waits for the answer
            self.cancelled("disconnect")

    def _is_rejection(self, error: SteelyardError) -> bool:
        """True when the request was turned away; an engine may do that too, before any token."""
        is_refusal = isinstance(error, InvalidRequest | RetryLater)
        return not self._is_handed_over or (is_refusal and not self._has_output)

    def _end(self, outcome: str, reason: str) -> bool:
        if self._is_ended:
            return False
        self._is_ended = True
        if not self._is_handed_over:
            self._model.waiting.add(-1)
        self._model.ended(outcome, reason)
        self._tenant.ended(outcome)
        self._tenant.output_tokens.add(self.output_tokens)
        return True


class StreamMeter:
    """The tokens of one choice as they are sent."""

    __slots__ = ("_clock", "_gap", "_last_s", "_output", "_request")

    def __init__(self, request: RequestMeter, model: ModelSeries, clock: Clock) -> None:
        self._request = request
        self._gap = model.spread.gap
        self._output = model.output_tokens
        self._clock = clock
        self._last_s: float | None = None

    def tokens(self, count: int) -> None:
        """`count` ≥ 1 tokens are being sent now. Runs for every chunk of every stream."""
        now_s = self._clock.now()
        last_s = self._last_s
        if last_s is None:
            self._request.output_began(now_s)
        else:
            self._gap.observe((now_s - last_s) / count, count)
        self._last_s = now_s
        self._output.value += count
        self._request.output_tokens += count
