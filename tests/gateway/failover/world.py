"""A failover engine over simulated replicas, in virtual time."""

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import aclosing
from dataclasses import dataclass, field
from typing import Any, TypeVar

from steelyard.contract import GenerateRequest, SamplingParams, TokenChunk, Usage
from steelyard.contract.errors import SteelyardError
from steelyard.gateway.failover import FailoverConfig, FailoverEngine
from steelyard.policies.config import PoliciesConfig
from steelyard.telemetry import Metrics

from ...simulated_engine import SimulatedEngine, expected_ids
from ...virtual_loop import LoopClock, run_virtually

__all__ = ["Result", "World", "ask", "in_world"]

T = TypeVar("T")


def ask(
    request_id: str = "r", *, prompt: tuple[int, ...] = (1, 2, 3), max_tokens: int = 30, **more: Any
) -> GenerateRequest:
    """A greedy request, unless `sampling` says otherwise."""
    sampling = more.pop("sampling", SamplingParams(max_tokens=max_tokens, temperature=0.0))
    return GenerateRequest(
        request_id=request_id, prompt_ids=prompt, sampling=sampling, model="sim", **more
    )


@dataclass
class Result:
    """What a client has seen of one request."""

    request: GenerateRequest
    ids: list[int] = field(default_factory=list)
    chunks: list[TokenChunk] = field(default_factory=list)
    times_s: list[float] = field(default_factory=list)
    error: SteelyardError | None = None

    @property
    def usage(self) -> Usage | None:
        return self.chunks[-1].usage if self.chunks else None

    @property
    def is_finished(self) -> bool:
        return bool(self.chunks) and self.chunks[-1].finish_reason is not None

    @property
    def largest_gap_s(self) -> float:
        pairs = zip(self.times_s, self.times_s[1:], strict=False)
        return max((later - earlier for earlier, later in pairs), default=0.0)

    def check(self) -> "Result":
        """Assert that it is exactly what an undisturbed client would have seen."""
        assert self.error is None, self.error
        assert self.is_finished
        self.check_prefix()
        assert self.ids == expected_ids(self.request)
        usage = self.usage
        assert usage is not None
        assert usage.prompt_tokens == len(self.request.prompt_ids)
        assert usage.completion_tokens == len(self.ids)
        return self

    def check_prefix(self) -> None:
        """Assert that nothing was lost, repeated or changed up to where it ended."""
        at = len(self.request.emitted_ids)
        for chunk in self.chunks:
            assert chunk.start == at and chunk.request_id == self.request.request_id
            at += len(chunk.token_ids)
        assert self.ids == expected_ids(self.request)[: len(self.ids)]


class World:
    """Replicas by name, and the engine in front of them."""

    def __init__(self, replicas: int, config: FailoverConfig, **engine: Any) -> None:
        self.clock = LoopClock()
        self.metrics = Metrics(clock=self.clock)
        self.failover = FailoverEngine(config, meter=self.metrics.failover, clock=self.clock)
        self.engines: list[SimulatedEngine] = []
        for index in range(replicas):
            self.add(f"a/{index}", **engine)

    def add(self, name: str, **engine: Any) -> SimulatedEngine:
        replica = SimulatedEngine(name, **engine)
        self.engines.append(replica)
        self.failover.add(name, replica)
        return replica

    async def run(self, request: GenerateRequest, *, stop_after: int | None = None) -> Result:
        """Be a client: iterate to the end, or leave after so many chunks."""
        result = Result(request)
        try:
            chunks: AsyncGenerator[TokenChunk, None] = self.failover.generate(request)
            async with aclosing(chunks):
                async for chunk in chunks:
                    result.chunks.append(chunk)
                    result.ids += chunk.token_ids
                    result.times_s.append(self.clock.now())
                    if stop_after is not None and len(result.chunks) >= stop_after:
                        break
        except SteelyardError as error:
            result.error = error
        return result

    def begin(self, request: GenerateRequest, **more: Any) -> "asyncio.Task[Result]":
        return asyncio.create_task(self.run(request, **more))

    def begin_many(self, count: int, **more: Any) -> "list[asyncio.Task[Result]]":
        """Different requests."""
        return [self.begin(ask(f"r{i}", prompt=(i, i + 1, i + 2), **more)) for i in range(count)]

    def host(self, request_id: str) -> SimulatedEngine:
        """Who has this request, or the newest attempt of it, now."""
        for engine in self.engines:
            if engine.holds(request_id):
                return engine
        raise AssertionError(f"nobody has {request_id}")

    def state(self, index: int) -> str:
        return self.failover.replicas[f"a/{index}"].known_state

    def metric(self, line: str) -> float:
        for row in self.metrics.exposition()[0].decode().splitlines():
            if row.startswith(line + " "):
                return float(row.rpartition(" ")[2])
        return 0.0

    def check_idle(self) -> None:
        """Assert that every slot was given back, on both sides."""
        self.failover.replicas.check_integrity()
        for member in self.failover.replicas:
            assert member.target.in_flight == 0, member.name
        for engine in self.engines:
            assert engine.live == 0, engine.name


def in_world(
    scenario: Callable[[World], Awaitable[T]],
    *,
    replicas: int = 3,
    config: FailoverConfig | None = None,
    policies: PoliciesConfig | None = None,
    settle_s: float = 15.0,
    **engine: Any,
) -> T:
    """Run a scenario: `settle_s` after the start, when all replicas have their full share."""
    config = config or FailoverConfig(policies=policies or PoliciesConfig())

    async def main() -> T:
        world = World(replicas, config, **engine)
        world.failover.startup()
        await asyncio.sleep(settle_s)
        try:
            return await scenario(world)
        finally:
            await world.failover.close()

    return run_virtually(main())
