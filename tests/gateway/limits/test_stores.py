"""Budgets in this process and in Redis: the same answers; shared ones are shared, and missed for
no longer than they must be."""

import asyncio
import itertools
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from steelyard.contract import RealClock, VirtualClock
from steelyard.gateway.limits.config import RedisConfig
from steelyard.gateway.limits.redis_store import RedisStore
from steelyard.gateway.limits.shared_store import SharedStore
from steelyard.gateway.limits.store import Lease, LimitStore, MemoryStore
from steelyard.policies.budgets import Limits, Verdict
from steelyard.telemetry import Metrics

from .redis_process import RedisProcess, redis_process


@pytest.fixture(scope="module")
def server() -> Iterator[RedisProcess]:
    with redis_process() as running:
        yield running


class TimedRedisStore(RedisStore):
    """With the time of a virtual clock instead of the server's."""

    def _arguments(self, lease: Lease, *more: int | str) -> list[int | str]:
        _, *rest = super()._arguments(lease, *more)
        return [int(self._clock.now() * 1e6), *rest]


@asynccontextmanager
async def running(store: LimitStore) -> AsyncIterator[None]:
    task = asyncio.create_task(store.run())
    try:
        yield
    finally:
        task.cancel()
        await asyncio.wait((task,))


STEP = st.tuples(
    st.sampled_from(["open", "open", "reserve", "close"]),
    st.integers(0, 3),
    st.integers(0, 120),
    st.sampled_from([0.0, 0.25, 1.0, 7.0]),
)
LIMITS = st.builds(
    Limits,
    requests_per_minute=st.sampled_from([None, 3, 60]),
    tokens_per_minute=st.sampled_from([None, 100, 600]),
    concurrent_requests=st.sampled_from([None, 1, 3]),
)


NUMBERS = itertools.count()
"""Each example has keys of its own, also when hypothesis repeats it."""


@given(limits=LIMITS, steps=st.lists(STEP, max_size=25))
@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.too_slow])
def test_redis_gives_the_answers_that_a_process_gives_alone(
    server: RedisProcess,
    limits: Limits,
    steps: list[tuple[str, int, int, float]],
) -> None:
    asyncio.run(compare(server.config(prefix=f"p{next(NUMBERS)}", lease_s=1e6), limits, steps))


async def compare(
    config: RedisConfig, limits: Limits, steps: list[tuple[str, int, int, float]]
) -> None:
    clock = VirtualClock(1_000.0)
    stores: list[LimitStore] = [MemoryStore(clock), TimedRedisStore(config, clock)]
    open_leases: list[list[Lease]] = [[], []]
    async with running(stores[1]):
        for kind, index, tokens, pause_s in steps:
            clock.jump(pause_s)
            answers = []
            for store, leases in zip(stores, open_leases, strict=True):
                answers.append(await take_step(store, leases, (kind, index, tokens), limits))
            assert answers[0] == answers[1], kind
            await settled(stores[1])


async def take_step(
    store: LimitStore, leases: list[Lease], step: tuple[str, int, int], limits: Limits
) -> Verdict | None:
    kind, index, tokens = step
    if kind == "open":
        verdict, lease = await store.open("team-a", limits)
        if lease is not None:
            leases.append(lease)
        return verdict
    if index >= len(leases):
        return None
    if kind == "reserve":
        return None if leases[index].reserved else await store.reserve(leases[index], tokens)
    lease = leases.pop(index)
    store.close(lease, min(tokens, lease.reserved))
    return None


async def settled(store: LimitStore) -> None:
    """Return once what was closed has reached the server."""
    assert isinstance(store, RedisStore)
    while store._closes or store._has_closes.is_set():
        await asyncio.sleep(0)
    await store.ping()


async def test_two_processes_share_one_budget(server: RedisProcess) -> None:
    limits = Limits(requests_per_minute=4, concurrent_requests=3)
    config = server.config(prefix="two")
    first, second = RedisStore(config, RealClock()), RedisStore(config, RealClock())
    leases = []
    for store in (first, second, first):
        _, lease = await store.open("team-a", limits)
        assert lease is not None
        leases.append((store, lease))
    verdict, _ = await second.open("team-a", limits)
    assert verdict.refused_by == "concurrency"
    assert (await second.open("team-b", limits))[1] is not None, "another tenant has its own"
    async with running(first):
        first.close(leases[0][1], 0)
        await asyncio.sleep(0.1)
        assert (await second.open("team-a", limits))[1] is not None
    verdict, _ = await second.open("team-a", limits)
    assert verdict.refused_by in ("requests", "concurrency")


async def test_a_dead_process_gives_back_its_places(server: RedisProcess) -> None:
    limits = Limits(concurrent_requests=1)
    config = server.config(prefix="dead", lease_s=0.2)
    dead, living = RedisStore(config, RealClock()), RedisStore(config, RealClock())
    assert (await dead.open("team-a", limits))[1] is not None
    assert (await living.open("team-a", limits))[1] is None
    await asyncio.sleep(0.3)
    async with running(living):
        assert (await living.open("team-a", limits))[1] is not None
        await asyncio.sleep(0.5)
        assert (await dead.open("team-a", limits))[1] is None, "the living one renews its place"


async def test_while_the_server_is_away_each_process_counts_alone_and_then_together() -> None:
    limits = Limits(requests_per_minute=2)
    metrics = Metrics()
    clock = VirtualClock()

    def is_up() -> bool:
        return b'steelyard_limits_store_up{store="redis"} 1.0' in metrics.exposition()[0]

    with redis_process() as server:
        store = SharedStore(RedisStore(server.config(), clock), clock=clock, meter=metrics.access)
        async with running(store):
            verdict, early = await store.open("team-a", limits)
            assert early is not None and early.id and is_up()
            server.kill()
            for _ in range(2):
                _, lease = await store.open("team-a", limits)
                assert lease is not None and not lease.id
            assert not is_up() and not store.is_up
            verdict, _ = await store.open("team-a", limits)
            assert verdict.refused_by == "requests", "limits hold without the server, too"
            assert (await store.reserve(early, 10)).refused_by is None
            store.close(early, 5)
            server.start()
            for _ in range(200):
                await clock.advance(1.0)
                await asyncio.sleep(0.01)
                if store.is_up:
                    break
            assert is_up()
            _, late = await store.open("team-a", limits)
            assert late is not None and late.id
