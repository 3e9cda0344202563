"""Models that credentials do not allow can neither be used nor seen."""

import pytest

from ..conftest import OpenDoor
from ..doors import Door
from ..wire import get, post
from .keyring import Keyring, bearer

MODELS = ("large", "small")


@pytest.fixture
def small(keyring: Keyring) -> str:
    return bearer(keyring.add("team-s", scopes=("llm:infer", "model:small", "model:unserved")))


@pytest.fixture
def door(keyring: Keyring, small: str, make_door: OpenDoor) -> Door:
    return make_door(keyring.gateway(), names=MODELS)


def listed(door: Door, field: str) -> list[str]:
    return [card["id"] for card in get(door, "/v1/models", field).json["data"]]


def test_the_list_of_models_holds_what_the_caller_may_use(
    door: Door, keyring: Keyring, small: str
) -> None:
    assert listed(door, bearer(keyring.infer)) == ["large", "small"]
    assert listed(door, small) == ["small"]
    assert get(door, "/v1/models/small", small).status == 200
    assert get(door, "/v1/models/large", small).status == 403


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/v1/completions", {"prompt": "x", "max_tokens": 1}),
        ("/v1/chat/completions", {"messages": [{"role": "user", "content": "x"}]}),
        ("/tokenize", {"prompt": "x"}),
        ("/detokenize", {"tokens": [65]}),
    ],
)
def test_a_model_without_a_grant_is_refused_everywhere(
    door: Door, small: str, path: str, body: dict[str, object]
) -> None:
    assert post(door, path, body | {"model": "small"}, small).status == 200
    reply = post(door, path, body | {"model": "large"}, small)
    assert reply.status == 403
    assert (reply.error["code"], reply.error["param"]) == ("permission_denied", "model")


def test_an_unknown_model_tells_nothing_of_those_for_others(door: Door, small: str) -> None:
    reply = post(door, "/v1/completions", {"model": "huge", "prompt": "x"}, small)
    assert reply.status == 404
    assert "small" in reply.error["message"] and "large" not in reply.error["message"]


def test_a_request_that_names_no_model_gets_one_that_is_allowed(
    door: Door, keyring: Keyring, small: str
) -> None:
    reply = post(door, "/tokenize", {"prompt": "x"}, small)
    assert reply.status == 200
    none = bearer(keyring.add("team-n", scopes=("llm:infer", "model:unserved")))
    door.wait_for(lambda: get(door, "/v1/models", none).status == 200)
    assert listed(door, none) == []
    assert post(door, "/tokenize", {"prompt": "x"}, none).status == 403
