"""`contract.Engine` without a model, in this process.

The n-th token of a prompt is a hash of both, so whoever holds the prompt can tell which token must
come at which place (`FakeEngine.expected_ids`): a router, a failover path or a load generator is
tested against the truth instead of against another program. Delays come from a seeded generator
and the injected clock, so a run under `VirtualClock` is the same every time.

It computes nothing, holds no KV memory, and schedules first come, first served without
preemption. What a real engine does is in `steelyard.engine`.
"""

from collections import deque
from collections.abc import AsyncGenerator, Sequence
from dataclasses import dataclass

import msgspec

from steelyard.backends.fake.faults import Fault, FaultKind, FaultPlan
from steelyard.backends.fake.slots import Run, Slots
from steelyard.backends.fake.tokens import PrefixMemory, TokenDraw, TokenSource, fake_logprobs
from steelyard.contract import (
    Clock,
    EngineInfo,
    EngineState,
    EngineStatus,
    FinishReason,
    GenerateRequest,
    RealClock,
    TokenChunk,
    TokenLogprobs,
    Usage,
)
from steelyard.contract.errors import (
    Cancelled,
    ContextTooLong,
    EngineDraining,
    EngineFailed,
    EngineLost,
    InvalidRequest,
    Overloaded,
)

__all__ = ["FakeEngine", "FakeEngineConfig"]


@dataclass(frozen=True, slots=True, kw_only=True)
class FakeEngineConfig:
    """What the pretended model is, and how fast it pretends to be."""

    model: str = "fake"
    context_tokens: int = 8192
    vocab_size: int = 256
    token_ids: tuple[int, ...] = ()
    """Outputs are drawn from these; empty means every id that is not an end token."""
    end_token_ids: tuple[int, ...] = ()
    output_tokens: int | None = None
    """The completion's natural length: its last token is the first of `end_token_ids`, unless
    the request ignores end tokens. None means that it only ends at `max_tokens`."""
    tokens_per_chunk: int = 1
    """As if one step produced several tokens of a stream (speculative decoding)."""
    max_running: int = 64
    max_waiting: int = 1024
    ttft_s: float = 0.0
    """From the start of a request (not from its arrival) to its first chunk."""
    prefill_s_per_token: float = 0.0
    """Added to `ttft_s` for every prompt token that was not in the prefix memory."""
    itl_s: float = 0.0
    """Between chunks. With 0 it never waits: the consumer sets the pace."""
    jitter: float = 0.0
    """Every delay is multiplied by a uniform factor from [1 - jitter, 1 + jitter]."""
    block_tokens: int = 16
    prefix_blocks: int = 4096
    """How many prompt blocks are remembered, the least recently used forgotten first."""
    seed: int = 0
    """Of the delays only. Tokens depend on the prompt and, when sampling, the request's seed."""


class FakeEngine:
    """`contract.Engine` without a model.

    An aborted request gives its slot back at once; its iterator raises `Cancelled` as soon as it
    wakes. Faults are planned with `inject` and hit requests in the order of their arrival.
    """

    def __init__(self, config: FakeEngineConfig | None = None, clock: Clock | None = None) -> None:
        self.config = config or FakeEngineConfig()
        self.recent_requests: deque[GenerateRequest] = deque(maxlen=1024)
        """What arrived, oldest first, refused requests included."""
        self._clock = clock or RealClock()
        self._tokens = TokenSource(_drawable_ids(self.config))
        self._prefixes = PrefixMemory(self.config.block_tokens, self.config.prefix_blocks)
        self._slots = Slots(self.config.max_running, self.config.max_waiting)
        self._faults = FaultPlan()
        self._state: EngineState = "ready"
        self._arrivals = 0
        self._prompt_tokens = 0
        self._cached_tokens = 0
        self._produced_tokens = 0
        self._failed = 0

    @property
    def info(self) -> EngineInfo:
        if self._state == "lost":
            raise EngineLost("the engine is closed")
        return EngineInfo(
            model=self.config.model,
            context_tokens=self.config.context_tokens,
            vocab_size=self.config.vocab_size,
            end_token_ids=self.config.end_token_ids,
            epoch=f"fake-{self.config.seed}",
            kv_block_tokens=self.config.block_tokens,
            max_running=self.config.max_running,
            details={"engine": "fake"},
        )

    @property
    def recent_aborts(self) -> tuple[str, ...]:
        """Ids of the last requests that ended before their finish, oldest first."""
        return tuple(self._slots.recent_aborts)

    def inject(self, fault: Fault) -> None:
        """Plan a fault; several are consumed in order, one per request."""
        self._faults.add(fault)

    def expected_ids(self, request: GenerateRequest) -> tuple[int, ...]:
        """The whole completion `request` gets when nothing goes wrong. Changes nothing."""
        draw = self._tokens.stream(request)
        ids: list[int] = []
        reason: FinishReason | None = None
        while reason is None:
            token_id, reason = self._next_token(draw, request, len(ids))
            ids.append(token_id)
        return tuple(ids)

    async def generate(self, request: GenerateRequest) -> AsyncGenerator[TokenChunk, None]:
        """See `contract.Engine`. Nothing happens before the first item is asked for."""
        fault = self._faults.next()
        self.recent_requests.append(request)
        run = self._enter(request, fault)
        finished = False
        try:
            await run.admitted
            run.raise_if_ended()
            cached_tokens = self._prefill(request)
            await self._pause(run, self._first_delay_s(request, cached_tokens))
            start = len(request.emitted_ids)
            draw = self._tokens.stream(request)
            while not finished:
                await self._break_if_due(run, fault)
                chunk = self._chunk(run, draw, start, cached_tokens)
                start += len(chunk.token_ids)
                finished = chunk.finish_reason is not None
                yield _garbled(chunk) if fault and fault.is_garbage_at(run.produced) else chunk
                if not finished:
                    await self._pause(run, self.config.itl_s)
        finally:
            self._slots.leave(run, finished=finished)

    async def abort(self, request_id: str) -> None:
        self._slots.stop(request_id, Cancelled("the request was aborted"))

    async def status(self) -> EngineStatus:
        return EngineStatus(
            state=self._state,
            epoch=f"fake-{self.config.seed}",
            running=self._slots.running,
            waiting=self._slots.waiting,
            prompt_tokens_total=self._prompt_tokens,
            cached_tokens_total=self._cached_tokens,
            computed_tokens_total=self._prompt_tokens - self._cached_tokens + self._produced_tokens,
            produced_tokens_total=self._produced_tokens,
            finished_total=self._slots.finished_total,
            aborted_total=self._slots.aborted_total,
            failed_total=self._failed,
        )

    async def warm(self, prompts: Sequence[Sequence[int]]) -> None:
        for prompt in prompts:
            self._prefixes.remember(prompt, "")

    async def drain(self) -> None:
        if self._state == "ready":
            self._state = "draining"
        await self._slots.until_idle()

    async def close(self) -> None:
        self._lose("the engine was closed")

    def _enter(self, request: GenerateRequest, fault: Fault | None) -> Run:
        _refuse_if_impossible(request, self.config, self._state)
        if fault is not None and fault.kind is FaultKind.OVERLOADED:
            raise Overloaded("the fake engine was told to refuse", delay_s=fault.delay_s)
        self._arrivals += 1
        run = Run(request, delay_seed=f"{self.config.seed}/{self._arrivals}")
        self._slots.enter(run)
        return run

    def _prefill(self, request: GenerateRequest) -> int:
        cached_tokens = self._prefixes.remember(request.prompt_ids, request.cache_salt)
        self._prompt_tokens += len(request.prompt_ids)
        self._cached_tokens += cached_tokens
        return cached_tokens

    def _first_delay_s(self, request: GenerateRequest, cached_tokens: int) -> float:
        new_tokens = len(request.prompt_ids) + len(request.emitted_ids) - cached_tokens
        return self.config.ttft_s + new_tokens * self.config.prefill_s_per_token

    async def _pause(self, run: Run, duration_s: float) -> None:
        if duration_s > 0:
            jitter = self.config.jitter
            factor = run.delays.uniform(1.0 - jitter, 1.0 + jitter) if jitter else 1.0
            await self._clock.sleep(duration_s * factor)
        run.raise_if_ended()

    async def _break_if_due(self, run: Run, fault: Fault | None) -> None:
        if fault is None or run.produced < fault.after_tokens:
            return
        match fault.kind:
            case FaultKind.FAIL:
                self._failed += 1
                raise EngineFailed("the fake engine was told to fail")
            case FaultKind.DROP:
                raise EngineLost("the fake engine was told to drop the connection")
            case FaultKind.DIE:
                self._lose("the fake engine was told to die")
                run.raise_if_ended()
            case FaultKind.STALL:
                await run.stall()
            case _:
                return

    def _chunk(self, run: Run, draw: TokenDraw, start: int, cached_tokens: int) -> TokenChunk:
        request = run.request
        ids: list[int] = []
        reason: FinishReason | None = None
        while reason is None and len(ids) < self.config.tokens_per_chunk:
            token_id, reason = self._next_token(draw, request, start + len(ids))
            ids.append(token_id)
        run.produced += len(ids)
        self._produced_tokens += len(ids)
        k = request.sampling.logprobs
        logprobs = k if k is None else tuple(self._logprobs(token_id, k) for token_id in ids)
        usage = None
        if start == 0 or reason is not None:
            usage = Usage(len(request.prompt_ids), start + len(ids), cached_tokens)
        return TokenChunk(
            request.request_id,
            start,
            tuple(ids),
            logprobs,
            finish_reason=reason,
            stop_token_id=ids[-1] if reason == "stop" else None,
            usage=usage,
        )

    def _next_token(
        self, draw: TokenDraw, request: GenerateRequest, index: int
    ) -> tuple[int, FinishReason | None]:
        """The token at `index` of the completion, and whether the completion ends with it."""
        sampling, config = request.sampling, self.config
        may_stop = index >= sampling.min_tokens
        ends_here = config.output_tokens is not None and index + 1 >= config.output_tokens
        if ends_here and may_stop and config.end_token_ids and not sampling.ignore_eos:
            return config.end_token_ids[0], "stop"
        token_id = draw.at(index)
        if may_stop and token_id in sampling.stop_token_ids:
            return token_id, "stop"
        return token_id, "length" if index + 1 >= sampling.max_tokens else None

    def _logprobs(self, token_id: int, count: int) -> TokenLogprobs:
        return fake_logprobs(token_id, count, self.config.vocab_size)

    def _lose(self, why: str) -> None:
        self._state = "lost"
        self._slots.stop_all(EngineLost(why))


def _refuse_if_impossible(
    request: GenerateRequest, config: FakeEngineConfig, state: EngineState
) -> None:
    if state == "lost":
        raise EngineLost("the engine is closed")
    if state == "draining":
        raise EngineDraining("the engine takes no new requests")
    if not request.prompt_ids:
        raise InvalidRequest("the prompt is empty", param="prompt")
    foreign = next((i for i in request.prompt_ids if not 0 <= i < config.vocab_size), None)
    if foreign is not None:
        raise InvalidRequest(f"token id {foreign} is not in the vocabulary", param="prompt")
    asked = len(request.prompt_ids) + request.sampling.max_tokens
    if asked > config.context_tokens:
        raise ContextTooLong(f"{asked} tokens were asked for, {config.context_tokens} fit")


def _garbled(chunk: TokenChunk) -> TokenChunk:
    return msgspec.structs.replace(chunk, start=chunk.start + 7)


def _drawable_ids(config: FakeEngineConfig) -> tuple[int, ...]:
    if config.token_ids:
        return config.token_ids
    ends = frozenset(config.end_token_ids)
    return tuple(i for i in range(config.vocab_size) if i not in ends)
