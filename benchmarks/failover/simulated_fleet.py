"""A thousand replicas that fail at random, clients of all manners, and what must hold all the same.

One seed is one story, told in virtual time: the same seed tells it again. What holds at its end:

    nothing lost, nothing repeated    chunks join, tokens are the known ones, usage counts them
    nobody forgotten                  every client got a finish reason or an error, within bounds
    no slot leaked                    nothing is in flight, in the gateway or in any replica
"""

import asyncio
import hashlib
import random
from collections import Counter
from contextlib import aclosing
from dataclasses import dataclass, field

from tests.simulated_engine import POISON, SimulatedEngine, expected_ids
from tests.virtual_loop import LoopClock, run_virtually

from steelyard.contract import GenerateRequest, SamplingParams, TokenChunk
from steelyard.contract.errors import EngineFailed, EngineLost, Quarantined, SteelyardError
from steelyard.gateway.failover import FailoverConfig, FailoverEngine
from steelyard.telemetry import Metrics

__all__ = ["Outcome", "Scale", "simulate"]

_SETTLE_S = 3.0
"""Every replica has answered a probe by then."""
_END_S = 240.0
"""Whoever has no end by then has been forgotten: deadlines, patience and stalls together are
shorter."""


@dataclass(frozen=True)
class Scale:
    """How much happens."""

    replicas: int = 1000
    requests: int = 250
    faults: int = 120
    span_s: float = 10.0
    """Requests and faults begin within this time."""


@dataclass
class Outcome:
    """What came of one seed."""

    seed: int
    ends: Counter[str] = field(default_factory=Counter)
    """Requests by how they ended: `finished`, `left`, or the error's code."""
    faults: Counter[str] = field(default_factory=Counter)
    moves: int = 0
    tokens: int = 0
    digest: str = ""
    """Of every chunk and its time: equal for equal stories."""


def simulate(seed: int, scale: Scale | None = None) -> Outcome:
    """Run one story. Raises `AssertionError` when something does not hold."""

    async def tell() -> Outcome:
        return await _Story(seed, scale or Scale()).tell()

    return run_virtually(tell())


@dataclass
class _Client:
    """One request, what its client intends, and what it has seen."""

    request: GenerateRequest
    leaves_after: int | None
    """Hangs up after so many chunks; None: stays."""
    aborts: bool
    """Calls `abort` instead of hanging up."""
    dawdles_s: float
    """Looks away between chunks."""
    ids: list[int] = field(default_factory=list)
    end: str = ""


class _Story:
    def __init__(self, seed: int, scale: Scale) -> None:
        self._scale = scale
        self._chance = random.Random(seed)
        self._clock = LoopClock()
        self._metrics = Metrics(clock=self._clock)
        self._failover = FailoverEngine(
            FailoverConfig(seed=seed), meter=self._metrics.failover, clock=self._clock
        )
        self._engines = {f"main/{i}": self._new_engine(f"main/{i}") for i in range(scale.replicas)}
        self._retired: list[SimulatedEngine] = []
        self._outcome = Outcome(seed)
        self._trace = hashlib.blake2b(digest_size=8)

    async def tell(self) -> Outcome:
        for name, engine in self._engines.items():
            self._failover.add(name, engine)
        self._failover.startup()
        await asyncio.sleep(_SETTLE_S)
        try:
            async with asyncio.timeout(_END_S):
                clients = [asyncio.create_task(self._be_client(i)) for i in self._numbers()]
                faults = [asyncio.create_task(self._fail()) for _ in range(self._scale.faults)]
                await asyncio.gather(*clients, *faults)
        except TimeoutError:
            raise AssertionError("somebody was forgotten") from None
        await asyncio.sleep(1.0)  # what was given up is cleaned up
        self._check_nothing_is_left()
        await self._failover.close()
        self._outcome.moves = self._count_moves()
        self._outcome.digest = self._trace.hexdigest()
        return self._outcome

    def _numbers(self) -> range:
        return range(self._scale.requests)

    def _new_engine(self, name: str) -> SimulatedEngine:
        itl_s = self._chance.choice((0.02, 0.05, 0.1))
        return SimulatedEngine(name, itl_s=itl_s, ttft_s=2 * itl_s, max_running=8)

    # Clients.

    async def _be_client(self, number: int) -> None:
        client = self._new_client(number)
        await asyncio.sleep(self._chance.random() * self._scale.span_s)
        try:
            async with aclosing(self._failover.generate(client.request)) as chunks:
                async for chunk in chunks:
                    self._note(client, chunk)
                    if client.dawdles_s:
                        await asyncio.sleep(client.dawdles_s)
                    if len(client.ids) == client.leaves_after:
                        if not client.aborts:
                            client.end = "left"
                            break
                        await self._failover.abort(client.request.request_id)
        except SteelyardError as error:
            client.end = error.code
        self._check_client(client)

    def _new_client(self, number: int) -> _Client:
        chance = self._chance
        is_poison = chance.random() < 0.002
        prompt = (number, *(chance.randrange(500) for _ in range(chance.randrange(60))))
        max_tokens = chance.randrange(1, 80)
        sampling = SamplingParams(
            max_tokens=max_tokens,
            temperature=chance.choice((0.0, 0.8)),
            seed=number,
            logprobs=chance.choice((None, 0)),
        )
        request = GenerateRequest(
            request_id=f"r{number}",
            prompt_ids=(POISON, *prompt) if is_poison else prompt,
            sampling=sampling,
            session=chance.choice(("", f"session {number % 7}")),
            deadline_s=chance.choice((None, None, None, 5.0)),
        )
        return _Client(
            request,
            leaves_after=chance.randrange(max_tokens) + 1 if chance.random() < 0.1 else None,
            aborts=chance.random() < 0.5,
            dawdles_s=0.3 if chance.random() < 0.03 else 0.0,
        )

    def _note(self, client: _Client, chunk: TokenChunk) -> None:
        request = client.request
        assert chunk.request_id == request.request_id, "somebody else's tokens"
        assert chunk.start == len(client.ids), f"{request.request_id}: lost or repeated a token"
        client.ids += chunk.token_ids
        self._trace.update(
            b"%s %f %d" % (request.request_id.encode(), self._clock.now(), chunk.token_ids[0])
        )
        if chunk.finish_reason is not None:
            client.end = "finished"
            usage = chunk.usage
            assert usage is not None, "no usage at the end"
            assert usage.prompt_tokens == len(request.prompt_ids), "wrong usage"
            assert usage.completion_tokens == len(client.ids), "wrong usage"

    def _check_client(self, client: _Client) -> None:
        expected = expected_ids(client.request)
        assert client.end, f"{client.request.request_id} ended silently"
        assert client.ids == expected[: len(client.ids)], "wrong tokens"
        if client.end == "finished":
            assert client.ids == expected, "a token is missing at the end"
        is_innocent = POISON not in client.request.prompt_ids
        if client.end == Quarantined.code and is_innocent:
            client.end += ", though innocent"
        self._outcome.ends[client.end] += 1
        self._outcome.tokens += len(client.ids)

    # Faults.

    async def _fail(self) -> None:
        chance = self._chance
        await asyncio.sleep(chance.random() * self._scale.span_s)
        name = self._victim()
        sudden = (self._kill, self._freeze)
        others = (self._drain, self._hiccup, self._garble, self._slow, self._replace)
        fault = chance.choice((*sudden, *sudden, *others))
        self._outcome.faults[fault.__name__.strip("_")] += 1
        await fault(name)

    def _victim(self) -> str:
        """Most failures that matter hit somebody who works."""
        busy = [name for name, engine in self._engines.items() if engine.live]
        if busy and self._chance.random() < 0.8:
            return self._chance.choice(busy)
        return self._chance.choice(list(self._engines))

    async def _kill(self, name: str) -> None:
        engine = self._engines[name]
        engine.kill()
        await asyncio.sleep(self._chance.uniform(0.2, 6.0))
        engine.revive()

    async def _freeze(self, name: str) -> None:
        engine = self._engines[name]
        engine.freeze()
        await asyncio.sleep(self._chance.uniform(0.1, 8.0))
        if self._chance.random() < 0.3:
            engine.kill()
            engine.revive()
        engine.thaw()

    async def _drain(self, name: str) -> None:
        engine = self._engines[name]
        engine.begin_drain()
        await asyncio.sleep(1.0)
        engine.kill()
        engine.revive()

    async def _hiccup(self, name: str) -> None:
        engine = self._engines[name]
        error = self._chance.choice((EngineFailed("a step failed"), EngineLost("reset")))
        engine.fails_next.append(error)
        engine.fails_after = self._chance.randrange(20)

    async def _garble(self, name: str) -> None:
        self._engines[name].garbles_next += 1

    async def _slow(self, name: str) -> None:
        engine = self._engines[name]
        engine.slowdown = self._chance.uniform(2.0, 20.0)
        await asyncio.sleep(5.0)
        engine.slowdown = 1.0

    async def _replace(self, name: str) -> None:
        """As a rolling update does it: another one comes, this one goes."""
        engine = self._engines.pop(name, None)
        if engine is None:
            return
        successor = f"{name}'"
        self._engines[successor] = self._new_engine(successor)
        self._failover.add(successor, self._engines[successor])
        self._retired.append(engine)
        await self._failover.retire(name, grace_s=0.5)

    # At the end.

    def _check_nothing_is_left(self) -> None:
        self._failover.replicas.check_integrity()
        for member in self._failover.replicas:
            assert member.target.in_flight == 0, f"a slot of {member.name} leaked"
        for engine in (*self._engines.values(), *self._retired):
            assert engine.live == 0, f"{engine.name} still works for nobody"

    def _count_moves(self) -> int:
        rows = self._metrics.exposition()[0].decode().splitlines()
        moves = (row for row in rows if row.startswith("steelyard_failover_moves_total{"))
        return sum(int(float(row.rpartition(" ")[2])) for row in moves)
