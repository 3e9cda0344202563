"""Every fault that load generators are known for is planted here, and found by its right name.

The client is the real one, against the mock; the faults are put where they have been seen: in the
schedule, between driver and sockets, on the event loop, in the clock.
"""

import asyncio
import dataclasses
import time
from collections.abc import Callable

import numpy as np
import pytest

from steelyard.lab.audit import Audit, AuditLimits, Evidence, audit
from steelyard.lab.client import Instruments, Job, Limits, Observation, Target
from steelyard.lab.client.exchange import Exchange
from steelyard.lab.client.pool import ConnectionPool
from steelyard.lab.load import (
    CacheState,
    ClosedLoop,
    Fixed,
    OpenLoop,
    Plan,
    Synthetic,
    Workload,
    make_plan,
    new_nonce,
    steady,
)
from steelyard.lab.mock.distributions import parse_distribution
from steelyard.lab.outcomes import Outcome
from steelyard.lab.window import find_window

from ..client.conftest import Start, start_mock  # noqa: F401 - a fixture

POISSON = OpenLoop(steady(40, 4))
PATIENT = AuditLimits(loop_lag_ms=25, distortion_ms=25, connection_wait_ms=50)
"""Mock, client and test share an event loop here, on a machine that others use as well."""


@pytest.fixture
async def url(start_mock: Start) -> str:  # noqa: F811
    mock = await start_mock(ttft_ms=parse_distribution(60), itl_ms=parse_distribution(5))
    return mock.url


async def test_an_honest_run_is_valid(url: str) -> None:
    judged = await judge(url)
    assert judged.is_valid, judged.reasons
    assert not judged.labels
    assert {check.status for check in judged.checks} <= {"pass", "skip", "warn"}


@pytest.mark.slow
async def test_an_honest_closed_loop_is_valid(url: str) -> None:
    judged = await judge(url, ClosedLoop(6, duration_s=3))
    assert judged.is_valid, judged.reasons
    assert judged.check("concurrency").values["peak"] == 6


@pytest.mark.slow
async def test_a_slow_client_is_found(url: str) -> None:
    judged = await judge(url, meanwhile=_burn)
    assert_reason(judged, "loop_lag", "too slow")


@pytest.mark.slow
async def test_a_late_start_that_is_caught_up_with_is_found(url: str) -> None:
    judged = await judge(url, start_in_s=-0.7)
    assert_reason(judged, "late_start", "began 0.")


@pytest.mark.slow
async def test_a_late_start_that_shifts_everything_is_found(url: str) -> None:
    def shifted(plan: Plan) -> Plan:
        assert plan.starts_s is not None
        return dataclasses.replace(plan, starts_s=plan.starts_s + 0.7)

    judged = await judge(url, instruments=Instruments(plan=shifted))
    assert_reason(judged, "late_start", "began 0.")


@pytest.mark.slow
async def test_a_hidden_cap_on_connections_is_found(url: str) -> None:
    judged = await judge(url, instruments=Instruments(sender=_CappedSender))
    assert_reason(judged, "connections", "hidden cap")


@pytest.mark.slow
async def test_workers_that_add_the_same_gaps_to_one_time_are_found(url: str) -> None:
    def repeated(plan: Plan) -> Plan:
        gaps = np.random.default_rng(42).exponential(1 / 40, 16)
        return dataclasses.replace(plan, starts_s=np.cumsum(np.repeat(gaps, 10)))

    judged = await judge(url, instruments=Instruments(plan=repeated))
    assert_reason(judged, "random_streams", "share a random stream")


@pytest.mark.slow
async def test_workers_that_run_the_same_schedule_side_by_side_are_found(url: str) -> None:
    def doubled(plan: Plan) -> Plan:
        own = np.cumsum(np.random.default_rng(42).exponential(4 / 40, 40))
        return dataclasses.replace(plan, starts_s=np.repeat(own, 4))

    judged = await judge(url, instruments=Instruments(plan=doubled))
    assert_reason(judged, "random_streams", "share a random stream")


@pytest.mark.parametrize("jump_s", [3.0, -0.4])
@pytest.mark.slow
async def test_a_clock_that_jumps_is_found(url: str, jump_s: float) -> None:
    begun_s = time.monotonic()

    def clock() -> float:
        return time.time() + (jump_s if time.monotonic() > begun_s + 1.5 else 0.0)

    judged = await judge(url, instruments=Instruments(unix_now=clock))
    assert_reason(judged, "clock", f"jumped by {jump_s:+.1f}")


async def test_a_wrong_rate_is_found(url: str) -> None:
    def faster(plan: Plan) -> Plan:
        assert plan.starts_s is not None
        return dataclasses.replace(plan, starts_s=plan.starts_s / 1.3)

    judged = await judge(url, instruments=Instruments(plan=faster))
    assert not judged.is_valid
    assert judged.check("delivered_rate").status == "pass", "all of them left in time"
    assert judged.check("schedule").status == "fail"


@pytest.mark.slow
async def test_requests_that_are_never_sent_are_found(url: str) -> None:
    def shortened(plan: Plan) -> Plan:
        return dataclasses.replace(plan, limit=100)

    judged = await judge(url, instruments=Instruments(plan=shortened))
    assert judged.check("unsent").status == "fail"
    assert any("60 of 160 sessions were never begun" in reason for reason in judged.reasons)


@pytest.mark.slow
async def test_more_users_than_asked_are_found(url: str) -> None:
    def crowded(plan: Plan) -> Plan:
        return dataclasses.replace(plan, arrivals=ClosedLoop(9, duration_s=2))

    judged = await judge(url, ClosedLoop(6, duration_s=2), instruments=Instruments(plan=crowded))
    assert_reason(judged, "concurrency", "9 at the peak")


@pytest.mark.slow
async def test_an_overloaded_server_is_saturated_and_the_run_is_valid(
    start_mock: Start,  # noqa: F811
) -> None:
    slow = await start_mock(ttft_ms=parse_distribution(60), itl_ms=parse_distribution(10), slots=4)
    judged = await judge(slow.url, OpenLoop(steady(60, 2.5), concurrency_cap=8))
    assert judged.is_valid, judged.reasons
    assert judged.labels == ["saturated"]
    uncapped = await judge(slow.url, OpenLoop(steady(60, 2.5)))
    assert uncapped.labels == ["saturated"]


@pytest.mark.slow
async def test_answers_that_fail_are_no_base_for_percentiles(
    start_mock: Start,  # noqa: F811
) -> None:
    failing = await start_mock(ttft_ms=parse_distribution(20), fault_500=0.3)
    assert_reason(await judge(failing.url), "failures", "failed")
    shedding = await start_mock(ttft_ms=parse_distribution(20), fault_429=0.3)
    assert_reason(await judge(shedding.url), "failures", "turned away")
    assert (await judge(shedding.url, sheds_on_purpose=True)).is_valid


async def test_a_server_that_counts_wrongly_is_found(start_mock: Start) -> None:  # noqa: F811
    mock = await start_mock(ttft_ms=parse_distribution(20), fault_usage=0.0, bundle_tokens=3)
    judged = await judge(mock.url)
    assert judged.check("tokens").status == "warn"
    assert "events bring" in judged.check("tokens").message


@pytest.mark.slow
async def test_an_interrupted_run_says_so(url: str) -> None:
    async def stop(observation: Observation) -> None:
        await asyncio.sleep(1.5)
        observation.stop()

    judged = await judge(url, meanwhile=stop, is_interrupted=True)
    assert judged.is_valid, judged.reasons
    assert "interrupted" in judged.labels
    assert judged.check("delivered_rate").status == "skip"


async def judge(url: str, *arguments, meanwhile=None, **options) -> Audit:
    """Measure and judge, again when other programs of this machine kept the client from working."""
    for _ in range(4):
        judged = await _judge_once(url, *arguments, meanwhile=meanwhile, **options)
        if meanwhile is _burn or judged.check("loop_lag").status == "pass":
            return judged
    pytest.skip("this machine is too busy to measure on")


async def _judge_once(
    url: str,
    arrivals=POISSON,
    *,
    instruments: Instruments = Instruments(),  # noqa: B008 - immutable
    start_in_s: float = 0.1,
    meanwhile: Callable | None = None,
    is_interrupted: bool = False,
    sheds_on_purpose: bool = False,
) -> Audit:
    workload = Workload(
        arrivals=arrivals,
        content=Synthetic(input=Fixed(20), output=Fixed(8)),
        cache=CacheState.COLD,
        seed=3,
    )
    job = Job(
        workload=workload,
        target=Target(url=url, model="m"),
        nonce=new_nonce(),
        run_id="judged",
        limits=Limits(stall_s=5),
    )
    observation = Observation(job, instruments)
    observation.prepare()
    beside = asyncio.create_task(meanwhile(observation)) if meanwhile else None
    seen = await observation.run(time.monotonic() + start_in_s)
    if beside is not None:
        beside.cancel()
    plan = make_plan(workload)
    measured = find_window(seen.records, plan)
    return audit(
        Evidence(
            workload=workload,
            plan=plan,
            records=seen.records,
            health=(seen.health,),
            window=measured.window,
            is_settled=measured.is_settled,
            is_interrupted=is_interrupted,
            sheds_on_purpose=sheds_on_purpose,
        ),
        PATIENT,
    )


def assert_reason(judged: Audit, name: str, words: str) -> None:
    """The run is invalid, for this reason first."""
    assert not judged.is_valid
    assert judged.check(name).status == "fail", judged.reasons
    assert words in judged.check(name).message
    assert judged.reasons[0] == judged.check(name).message, judged.reasons


async def _burn(observation: Observation) -> None:
    """Something on the event loop that needs a processor, as slow parsing does."""
    while True:
        end_s = time.monotonic() + 0.06
        while time.monotonic() < end_s:
            pass
        await asyncio.sleep(0.005)


class _CappedSender:
    """A pool that queues silently, as HTTP libraries do."""

    def __init__(self, pool: ConnectionPool) -> None:
        self._pool = pool
        self._places = asyncio.Semaphore(3)

    async def send(self, exchange: Exchange, request: bytes) -> None:
        async with self._places:
            await self._pool.send(exchange, request)
            await exchange.done


def test_outcomes_keep_their_numbers() -> None:
    """They are stored."""
    assert [int(outcome) for outcome in Outcome] == list(range(14))
