"""Tenants' limits as clients meet them: at a real door, in header fields and refusals."""

import json
from typing import Any

import pytest

from steelyard.gateway.config import GatewayConfig
from steelyard.gateway.limits.config import TenantRules, TenantsConfig
from steelyard.policies.budgets import Limits

from ..conftest import OpenDoor
from ..doors import Door
from ..wire import Reply, connect, post, request


@pytest.fixture
def limited(make_door: OpenDoor) -> Any:
    def make(
        rules: TenantRules | None = None, engine: dict[str, Any] | None = None, **of: int
    ) -> Door:
        default = rules or TenantRules(limits=Limits(**of))
        config = GatewayConfig(port=0, tenants=TenantsConfig(default=default, assumed_tokens=50))
        return make_door(config, **(engine or {}))

    return make


def ask(door: Door, **fields: Any) -> Reply:
    body = {"model": "fake", "prompt": "12345678", "max_tokens": 8, "ignore_eos": True, **fields}
    return post(door, "/v1/completions", body)


def test_requests_are_counted_and_the_answer_says_how_many_are_left(limited: Any) -> None:
    door = limited(requests_per_minute=2)
    first, second, third = (ask(door) for _ in range(3))
    assert [first.status, second.status, third.status] == [200, 200, 429]
    assert first.headers["x-ratelimit-limit-requests"] == "2"
    assert first.headers["x-ratelimit-remaining-requests"] == "1"
    assert third.error["code"] == "rate_limit_exceeded"
    assert 1 <= int(third.headers["retry-after"]) <= 30
    assert door.metric('steelyard_tenant_limited_total{resource="requests",tenant="default"}') == 1


def test_tokens_are_reserved_at_the_start_and_settled_at_the_end(limited: Any) -> None:
    door = limited(tokens_per_minute=100)
    assert ask(door, max_tokens=60).status == 200
    # 8 of the prompt and 60 produced are used; little comes back in the meantime.
    reply = ask(door, max_tokens=60)
    assert reply.status == 429
    assert 25 <= int(reply.headers["x-ratelimit-remaining-tokens"]) <= 40
    assert ask(door, max_tokens=8).status == 200


def test_a_request_that_names_no_limit_reserves_what_is_assumed_and_pays_what_it_uses(
    limited: Any,
) -> None:
    door = limited(tokens_per_minute=180)
    body = {"model": "fake", "messages": [{"role": "user", "content": "x"}], "stop": ["c"]}
    for _ in range(3):  # each reserves 50 and more, and uses a few
        assert post(door, "/v1/chat/completions", body).status == 200


def test_what_the_budget_can_never_hold_is_not_to_be_retried(limited: Any) -> None:
    reply = ask(limited(tokens_per_minute=20), max_tokens=100)
    assert (reply.status, reply.error["param"]) == (400, "max_tokens")


def test_a_client_that_leaves_pays_for_what_was_computed_and_frees_its_place(
    limited: Any,
) -> None:
    door = limited(tokens_per_minute=10_000, concurrent_requests=1, engine={"itl_s": 0.01})
    body = {"model": "fake", "prompt": "12345678", "max_tokens": 2000, "ignore_eos": True}
    sock = connect(door)
    sock.sendall(request("/v1/completions", json.dumps({**body, "stream": True}).encode()))
    assert b"data:" in sock.recv(4096) + sock.recv(4096)
    busy = ask(door)
    assert (busy.status, busy.error["code"]) == (429, "rate_limit_exceeded")
    sock.close()
    door.wait_for(lambda: door.run(door.engine.status()).running == 0)
    reply = ask(door)
    assert reply.status == 200
    assert int(reply.headers["x-ratelimit-remaining-tokens"]) > 9_000, "the rest came back"


def test_one_request_is_bounded_by_its_tenants_rules(limited: Any) -> None:
    door = limited(TenantRules(max_tokens=5, context_tokens=12))
    assert ask(door, max_tokens=6).error["param"] == "max_tokens"
    assert ask(door, max_tokens=5).error["code"] == "context_length_exceeded"
    assert ask(door, max_tokens=2).status == 200


def test_a_refused_request_costs_no_tokens(limited: Any) -> None:
    door = limited(tokens_per_minute=100)
    for _ in range(20):
        assert ask(door, temperature=9).status == 400
    assert ask(door, max_tokens=60).status == 200
