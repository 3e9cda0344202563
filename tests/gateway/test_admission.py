"""The bounded queue, in virtual time."""

import asyncio

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from steelyard.contract import VirtualClock
from steelyard.contract.errors import Overloaded
from steelyard.gateway.admission import Admission
from steelyard.gateway.config import GatewayConfig

from .conftest import OpenDoor
from .wire import post


def admission(clock: VirtualClock, in_flight: int = 2, queue: int = 2) -> Admission:
    return Admission(max_in_flight=in_flight, max_queue=queue, queue_timeout_s=10.0, clock=clock)


class Holder:
    """A task that wants a slot and keeps it until told otherwise."""

    def __init__(self, of: Admission) -> None:
        self.has_slot = False
        self.done = asyncio.Event()
        self.task = asyncio.ensure_future(self._hold(of))

    async def _hold(self, of: Admission) -> None:
        async with of.slot():
            self.has_slot = True
            await self.done.wait()


async def settle() -> None:
    for _ in range(20):
        await asyncio.sleep(0)


async def test_slots_go_to_those_who_waited_longest() -> None:
    gate = admission(VirtualClock(), in_flight=1, queue=3)
    holders = []
    for _ in range(4):
        holders.append(Holder(gate))
        await settle()
    for at, holder in enumerate(holders):
        assert [h.has_slot for h in holders] == [i <= at for i in range(4)]
        holder.done.set()
        await settle()
    assert (gate.in_flight, gate.waiting) == (0, 0)


async def test_a_full_queue_refuses_at_once_with_a_delay() -> None:
    gate = admission(VirtualClock())
    holders = [Holder(gate) for _ in range(4)]
    await settle()
    with pytest.raises(Overloaded) as full:
        await gate.take()
    assert 1.0 <= full.value.delay_s <= 60.0
    for holder in holders:
        holder.done.set()
    await settle()
    assert gate.in_flight == 0


async def test_the_delay_grows_with_how_long_slots_are_held() -> None:
    clock = VirtualClock()
    gate = admission(clock, in_flight=1, queue=0)
    for _ in range(50):
        async with gate.slot():
            clock.jump(20.0)
    async with gate.slot():
        with pytest.raises(Overloaded) as full:
            await gate.take()
    assert 15.0 < full.value.delay_s <= 20.0


async def test_waiting_ends_after_the_time_limit() -> None:
    clock = VirtualClock()
    gate = admission(clock, in_flight=1)
    first = Holder(gate)
    await settle()
    second = Holder(gate)
    await clock.advance(9.9)
    assert not second.task.done()
    await clock.advance(0.2)
    with pytest.raises(Overloaded):
        await second.task
    assert gate.waiting == 0
    first.done.set()
    await settle()
    assert gate.in_flight == 0


@settings(max_examples=300, deadline=None)
@given(
    st.lists(
        st.tuples(
            st.sampled_from(["arrive", "arrive", "leave", "cancel", "wait"]),
            st.integers(0, 5),  # whom it hits
            st.sampled_from([0, 1, 2, 3, 4, 20]),  # turns of the loop until the next step
        ),
        max_size=40,
    )
)
def test_slots_are_never_lost_nor_given_twice(steps: list[tuple[str, int, int]]) -> None:
    async def play() -> None:
        clock = VirtualClock()
        gate = admission(clock, in_flight=2, queue=3)
        holders: list[Holder] = []
        for step, whom, turns in steps:
            live = [h for h in holders if not h.task.done()]
            if step == "arrive":
                holders.append(Holder(gate))
            elif step == "leave" and live:
                live[whom % len(live)].done.set()
            elif step == "cancel" and live:
                live[whom % len(live)].task.cancel()
            elif step == "wait":
                await clock.advance(6.0)
            for _ in range(turns):
                await asyncio.sleep(0)
            assert gate.in_flight <= 2
        await settle()
        held = [h for h in holders if h.has_slot and not h.task.done()]
        assert gate.in_flight == len(held)
        for holder in holders:
            holder.task.cancel()
        await asyncio.gather(*(h.task for h in holders), return_exceptions=True)
        assert (gate.in_flight, gate.waiting) == (0, 0)

    asyncio.run(play())


def test_a_full_door_answers_429_quickly(make_door: OpenDoor) -> None:
    door = make_door(GatewayConfig(port=0, max_in_flight=1, max_queue=0), itl_s=0.05)
    ask = {"model": "fake", "prompt": "x", "max_tokens": 16}
    with_slot = door.run(_start(door.port, ask))
    door.wait_for(lambda: door.run(door.engine.status()).running == 1)
    reply = post(door, "/v1/completions", ask)
    assert (reply.status, reply.error["code"]) == (429, "overloaded")
    assert int(reply.headers["retry-after"]) >= 1
    assert reply.error["type"] == "rate_limit_error"
    with_slot.close()


async def _start(port: int, ask: dict) -> asyncio.StreamWriter:
    import json

    from .wire import request

    _, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(request("/v1/completions", json.dumps(ask).encode()))
    return writer
