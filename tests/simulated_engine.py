"""A `contract.Engine` that can be killed, frozen, slowed and cut off, under a virtual loop.

The n-th token of a completion is a hash of prompt, seed and n, so the truth is known without
running anything. It batches nothing: every request gets a token per `itl_s` while it has a place.
"""

import asyncio
from collections import deque
from collections.abc import AsyncGenerator, Sequence

from steelyard.contract import (
    EngineInfo,
    EngineState,
    EngineStatus,
    GenerateRequest,
    TokenChunk,
    TokenLogprobs,
    Usage,
)
from steelyard.contract.errors import (
    EngineDraining,
    EngineFailed,
    EngineLost,
    EngineStarting,
    Overloaded,
    SteelyardError,
)

__all__ = ["POISON", "SimulatedEngine", "expected_ids"]

POISON = 666
"""A prompt with this token kills whoever computes it."""
VOCAB = 1000


def expected_ids(request: GenerateRequest) -> list[int]:
    """The completion that `request` must get, whatever happens on the way."""
    sampling = request.sampling
    seed = 0 if sampling.is_greedy else sampling.seed
    return [_token(request.prompt_ids, seed, index) for index in range(sampling.max_tokens)]


def _token(prompt_ids: tuple[int, ...], seed: int, index: int) -> int:
    return hash((prompt_ids, seed, index)) % VOCAB


class _Run:
    """One request in the engine."""

    def __init__(self, request: GenerateRequest) -> None:
        self.request = request
        self.waiter: asyncio.Future[None] | None = None
        self.timer: asyncio.TimerHandle | None = None
        self.has_place = False


class SimulatedEngine:
    """One replica."""

    def __init__(
        self,
        name: str = "sim",
        *,
        itl_s: float = 0.02,
        ttft_s: float = 0.02,
        prefill_s_per_token: float = 0.0,
        max_running: int = 64,
        max_waiting: int = 1000,
        is_up: bool = True,
        can_continue: bool = True,
    ) -> None:
        self.name = name
        self.itl_s = itl_s
        self.ttft_s = ttft_s
        self.prefill_s_per_token = prefill_s_per_token
        self.max_running = max_running
        self.max_waiting = max_waiting
        self.can_continue = can_continue
        self.slowdown = 1.0
        self.starts = int(is_up)
        self.is_up = is_up
        self.is_draining = False
        self.fails_next: list[SteelyardError] = []
        """Raised, one per request, at its first token or, `fails_after` given, later."""
        self.fails_after = 0
        self.garbles_next = 0
        """So many chunks claim a wrong start."""
        self.deaths = 0
        self.seen: deque[GenerateRequest] = deque(maxlen=100_000)
        self.produced_total = 0
        self.finished_total = 0
        self._runs: dict[str, _Run] = {}
        self._queue: deque[_Run] = deque()
        self._thawed = asyncio.Event()
        self._thawed.set()
        self._cached: set[tuple[int, ...]] = set()

    # Controls.

    @property
    def live(self) -> int:
        """Requests it holds."""
        return len(self._runs)

    def holds(self, request_id: str) -> bool:
        """Whether it has this request, or a later attempt of it."""
        return any(name.partition("~")[0] == request_id for name in self._runs)

    @property
    def is_frozen(self) -> bool:
        return not self._thawed.is_set()

    def kill(self) -> None:
        """Gone without a word, with all it had."""
        if not self.is_up:
            return
        self.is_up = False
        self.deaths += 1
        self._thawed.set()
        runs, self._runs = list(self._runs.values()), {}
        self._queue.clear()
        self._cached.clear()
        for run in runs:
            self._wake(run, EngineLost(f"{self.name} died"))

    def revive(self) -> None:
        """A fresh process under the same name."""
        if not self.is_up:
            self.is_up = True
            self.is_draining = False
            self.starts += 1

    def freeze(self) -> None:
        """As SIGSTOP, or a network that swallows everything."""
        self._thawed.clear()

    def thaw(self) -> None:
        self._thawed.set()

    def begin_drain(self) -> None:
        """Take nothing new, and hand back what is there."""
        self.is_draining = True
        for run in list(self._runs.values()):
            self._wake(run, EngineDraining("going down"))

    # contract.Engine

    @property
    def info(self) -> EngineInfo:
        if not self.is_up:
            raise EngineStarting(f"{self.name} is being replaced", delay_s=2.0)
        return EngineInfo(
            model="sim",
            context_tokens=100_000,
            vocab_size=VOCAB,
            end_token_ids=(),
            epoch=f"{self.name}-{self.starts}",
            kv_block_tokens=16,
            kv_blocks_total=10_000,
            max_running=self.max_running,
            can_continue=self.can_continue,
        )

    async def generate(self, request: GenerateRequest) -> AsyncGenerator[TokenChunk, None]:
        run = self._enter(request)
        try:
            if not run.has_place:
                await self._wait(run, None)
            cached_tokens = self._cache(request)
            new_tokens = len(request.prompt_ids) + len(request.emitted_ids) - cached_tokens
            await self._compute(run, self.ttft_s + new_tokens * self.prefill_s_per_token)
            failure = self.fails_next.pop(0) if self.fails_next else None
            last = request.sampling.max_tokens - 1
            index = len(request.emitted_ids)
            while True:
                if failure and index - len(request.emitted_ids) >= self.fails_after:
                    raise failure
                yield self._chunk(request, index, cached_tokens)
                if index >= last:
                    self.finished_total += 1
                    return
                index += 1
                await self._compute(run, self.itl_s)
        finally:
            self._leave(run)

    async def abort(self, request_id: str) -> None:
        run = self._runs.get(request_id)
        if run is not None:
            self._wake(run, EngineFailed("aborted"))

    async def status(self) -> EngineStatus:
        info = self.info
        await self._thawed.wait()
        if self.starts != int(info.epoch.rpartition("-")[2]) or not self.is_up:
            raise EngineLost(f"{self.name} died")
        state: EngineState = "draining" if self.is_draining else "ready"
        running = len(self._runs) - len(self._queue)
        return EngineStatus(
            state=state,
            epoch=info.epoch,
            running=running,
            waiting=len(self._queue),
            step_time_s=self.itl_s * self.slowdown,
            steps_total=self.produced_total,
            produced_tokens_total=self.produced_total,
            computed_tokens_total=self.produced_total,
            finished_total=self.finished_total,
        )

    async def warm(self, prompts: Sequence[Sequence[int]]) -> None:
        self._cached.update(tuple(prompt) for prompt in prompts)

    async def drain(self) -> None:
        self.is_draining = True

    async def close(self) -> None:
        self.kill()

    def _enter(self, request: GenerateRequest) -> _Run:
        self.seen.append(request)
        if not self.is_up:
            raise EngineStarting(f"{self.name} is being replaced", delay_s=2.0)
        if self.is_draining:
            raise EngineDraining("going down")
        if len(self._queue) >= self.max_waiting:
            raise Overloaded(f"{self.name} is full", delay_s=1.0)
        assert request.request_id not in self._runs, "one id twice in one engine"
        run = _Run(request)
        run.has_place = len(self._runs) - len(self._queue) < self.max_running
        self._runs[request.request_id] = run
        if not run.has_place:
            self._queue.append(run)
        return run

    def _leave(self, run: _Run) -> None:
        if run.timer is not None:
            run.timer.cancel()
        if self._runs.get(run.request.request_id) is not run:
            return  # it died with its engine
        del self._runs[run.request.request_id]
        if not run.has_place:
            self._queue.remove(run)
        elif self._queue:
            following = self._queue.popleft()
            following.has_place = True
            self._wake(following, None)

    def _cache(self, request: GenerateRequest) -> int:
        prompt = request.prompt_ids
        hit = 16 * (len(prompt) // 16) if prompt in self._cached else 0
        self._cached.add(prompt)
        return hit

    def _chunk(self, request: GenerateRequest, index: int, cached_tokens: int) -> TokenChunk:
        seed = 0 if request.sampling.is_greedy else request.sampling.seed
        token = _token(request.prompt_ids, seed, index)
        is_last = index + 1 == request.sampling.max_tokens
        self.produced_total += 1
        start = index
        if self.garbles_next:
            self.garbles_next -= 1
            start += 3
        return TokenChunk(
            request.request_id,
            start,
            (token,),
            None if request.sampling.logprobs is None else (TokenLogprobs(-float(index)),),
            finish_reason="length" if is_last else None,
            usage=(
                Usage(len(request.prompt_ids), index + 1, cached_tokens)
                if is_last or index == 0
                else None
            ),
        )

    async def _compute(self, run: _Run, duration_s: float) -> None:
        await self._wait(run, duration_s * self.slowdown)
        if POISON in run.request.prompt_ids:
            self.kill()
            raise EngineLost(f"{self.name} died of poison")
        while not self._thawed.is_set():
            await self._wait(run, 0.05)

    async def _wait(self, run: _Run, duration_s: float | None) -> None:
        """Until `duration_s` has passed, the engine died, or somebody woke it."""
        self._check_alive(run)
        loop = asyncio.get_running_loop()
        run.waiter = waiter = loop.create_future()
        if duration_s is not None:
            run.timer = loop.call_later(duration_s, _set, waiter)
        try:
            await waiter
        finally:
            run.waiter = None
        self._check_alive(run)

    def _check_alive(self, run: _Run) -> None:
        if self._runs.get(run.request.request_id) is not run:
            raise EngineLost(f"{self.name} died")

    @staticmethod
    def _wake(run: _Run, error: SteelyardError | None) -> None:
        waiter = run.waiter
        if waiter is None or waiter.done():
            return
        if error is None:
            waiter.set_result(None)
        else:
            waiter.set_exception(error)


def _set(waiter: "asyncio.Future[None]") -> None:
    if not waiter.done():
        waiter.set_result(None)
