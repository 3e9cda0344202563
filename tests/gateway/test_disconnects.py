"""A client that leaves stops costing anything at once."""

import json
import time

import pytest

from steelyard.backends.fake import Fault, FaultKind
from steelyard.gateway.config import GatewayConfig

from .conftest import OpenDoor
from .doors import Door
from .wire import connect, post, request

CHAT = "/v1/chat/completions"
ASK = {"model": "fake", "messages": [{"role": "user", "content": "hi"}], "max_tokens": 1000}
CANCELLED = 'steelyard_requests_ended_total{model="fake",outcome="cancelled",reason="disconnect"}'


@pytest.mark.parametrize("streaming", [False, True])
def test_the_engine_is_told_within_a_tenth_of_a_second(
    make_door: OpenDoor, streaming: bool
) -> None:
    door = make_door(itl_s=0.01)
    took_s = []
    for leavers in (1, 2, 3):
        with connect(door) as sock:
            sock.sendall(request(CHAT, json.dumps(ASK | {"stream": streaming}).encode()))
            door.wait_for(lambda: door.run(door.engine.status()).running == 1)
            time.sleep(0.03)
        left_s = time.monotonic()
        door.wait_for(lambda wanted=leavers: len(door.engine.recent_aborts) == wanted)
        took_s.append(time.monotonic() - left_s)
    assert min(took_s) < 0.1  # the fastest: other programs may hold the machine
    assert door.run(door.engine.status()).running == 0
    door.wait_for(lambda: door.metric(CANCELLED) == 3)
    assert door.metric('steelyard_requests_in_flight{model="fake"}') == 0


@pytest.mark.parametrize("streaming", [False, True])
def test_a_client_that_leaves_before_the_first_token_is_noticed(
    door: Door, streaming: bool
) -> None:
    door.engine.inject(Fault(FaultKind.STALL))
    with connect(door) as sock:
        sock.sendall(request(CHAT, json.dumps(ASK | {"stream": streaming}).encode()))
        door.wait_for(lambda: door.run(door.engine.status()).running == 1)
    door.wait_for(lambda: door.run(door.engine.status()).running == 0)


def test_all_choices_of_a_client_that_leaves_are_aborted(make_door: OpenDoor) -> None:
    door = make_door(itl_s=0.01)
    with connect(door) as sock:
        sock.sendall(request(CHAT, json.dumps(ASK | {"stream": True, "n": 4}).encode()))
        door.wait_for(lambda: door.run(door.engine.status()).running == 4)
    door.wait_for(lambda: len(door.engine.recent_aborts) == 4)


def test_a_client_that_leaves_the_queue_gives_its_place_to_the_next(make_door: OpenDoor) -> None:
    door = make_door(GatewayConfig(port=0, max_in_flight=1, max_queue=1))
    door.engine.inject(Fault(FaultKind.STALL))
    body = json.dumps(ASK).encode()
    with connect(door) as running:
        running.sendall(request(CHAT, body))
        door.wait_for(lambda: door.run(door.engine.status()).running == 1)
        with connect(door) as waiting:
            waiting.sendall(request(CHAT, body))
            door.wait_for(lambda: post(door, CHAT, ASK).status == 429)
        with connect(door) as next_one:
            time.sleep(0.05)
            next_one.sendall(request(CHAT, body))
            door.wait_for(lambda: post(door, CHAT, ASK).status == 429)
    door.wait_for(lambda: door.run(door.engine.status()).running == 0)
    assert post(door, CHAT, ASK).status == 200


def test_nothing_leaks_over_hundreds_of_disconnects(make_door: OpenDoor) -> None:
    door = make_door(GatewayConfig(port=0, max_in_flight=8), itl_s=0.002)
    for round_ in range(200):
        with connect(door) as sock:
            stream = bool(round_ % 2)
            sock.sendall(request(CHAT, json.dumps(ASK | {"stream": stream}).encode()))
            if round_ % 3:
                time.sleep(0.001 * (round_ % 5))
    door.wait_for(lambda: door.metric("steelyard_connections") == 0)
    door.wait_for(lambda: door.run(door.engine.status()).running == 0)
    assert door.metric('steelyard_requests_in_flight{model="fake"}') == 0
    assert post(door, CHAT, ASK | {"max_tokens": 2}).status == 200
