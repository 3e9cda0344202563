"""Whatever JSON comes, the answer is a 200 or a 4xx, soon, and the next request is served."""

import json
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from steelyard.gateway.api.chat import ChatRequest
from steelyard.gateway.api.completions import CompletionRequest

from .doors import Door, open_door
from .wire import post, post_bytes

scalars = (
    st.none()
    | st.booleans()
    | st.integers(-(2**70), 2**70)
    | st.integers(-3, 30)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(max_size=12)
)
values = st.recursive(
    scalars,
    lambda inner: (
        st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=6), inner, max_size=4)
    ),
    max_leaves=8,
)
names = st.sampled_from(
    sorted({*ChatRequest.__struct_fields__, *CompletionRequest.__struct_fields__, "tools", "x"})
)
messages = st.lists(
    st.fixed_dictionaries(
        {"role": st.sampled_from(["user", "assistant", "system", "tool"]) | scalars},
        optional={"content": values, "name": scalars, "tool_calls": values},
    ),
    max_size=4,
)
# Half of the requests are sound but for a few changes, so that they get past the schema.
bodies = st.builds(
    lambda base, changes: base | changes,
    st.sampled_from(
        [
            {"model": "fake", "messages": [{"role": "user", "content": "hi"}], "max_tokens": 2},
            {"model": "fake", "prompt": "hi", "max_tokens": 2},
        ]
    ),
    st.dictionaries(names, values, max_size=3) | st.builds(lambda m: {"messages": m}, messages),
)
fuzz = settings(max_examples=150, deadline=None, suppress_health_check=list(HealthCheck))


@pytest.fixture(scope="module")
def door() -> Iterator[Door]:
    with open_door() as opened:
        yield opened


def check(door: Door, path: str, body: bytes) -> None:
    reply = post_bytes(door, path, body)
    assert reply.status < 500, (reply, body)
    if reply.status != 200:
        assert reply.status >= 400
        assert reply.error["message"]


@fuzz
@given(path=st.sampled_from(["/v1/chat/completions", "/v1/completions"]), body=bodies)
def test_no_json_object_breaks_the_door(door: Door, path: str, body: Any) -> None:
    check(door, path, json.dumps(body).encode())


@fuzz
@given(
    path=st.sampled_from(["/v1/chat/completions", "/tokenize", "/detokenize"]),
    body=values.map(json.dumps).map(str.encode) | st.binary(max_size=60),
)
def test_no_body_breaks_the_door(door: Door, path: str, body: bytes) -> None:
    check(door, path, body)


@fuzz
@given(data=st.data())
def test_no_damage_to_a_sound_body_breaks_the_door(door: Door, data: st.DataObject) -> None:
    body = bytearray(json.dumps(data.draw(bodies)).encode())
    for _ in range(data.draw(st.integers(1, 4))):
        at = data.draw(st.integers(0, len(body) - 1))
        body[at] = data.draw(st.integers(0, 255))
    check(door, "/v1/chat/completions", bytes(body))


def test_the_door_is_well_after_the_storm(door: Door) -> None:
    ask = {"model": "fake", "prompt": "hi", "max_tokens": 2}
    assert post(door, "/v1/completions", ask).status == 200
    assert door.run(door.engine.status()).running == 0
    door.wait_for(lambda: door.metric('steelyard_requests_in_flight{model="fake"}') == 0)
