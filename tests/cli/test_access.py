"""What a deployment file says about access is what a running service does: real processes."""

import time
from pathlib import Path
from typing import Any

import pytest
import yaml

from steelyard.gateway.auth.api_keys import KeyEntry, hash_key, new_key
from steelyard.gateway.auth.keys_file import add_key
from tests.gateway.auth.issuer import AUDIENCE, ISSUER, Issuer, Provider, claims, provider

from .stage import Command, Stage

PROMPT = {"model": "tiny", "prompt": "hello", "max_tokens": 2}


def deployment(stage: Stage, **tree: Any) -> str:
    """The path of a deployment file that says this."""
    path = stage.folder / "deployment.yaml"
    path.write_text(yaml.safe_dump({"backend": "fake", **tree}))
    return str(path)


def key(stage: Stage, tenant: str, **fields: Any) -> str:
    """A new key in the file of the service."""
    made = new_key()
    key_id, digest = hash_key(made)
    add_key(keys_file(stage), KeyEntry(id=key_id, sha256=digest, tenant=tenant, **fields))
    return made


def keys_file(stage: Stage) -> Path:
    return stage.folder / "keys.jsonl"


def with_keys(stage: Stage, **tenants: Any) -> Command:
    """A service that asks for keys."""
    auth = {"mode": "api_keys", "keys_file": str(keys_file(stage))}
    file = deployment(stage, gateway={"auth": auth}, tenants=tenants)
    return stage.serve("--config", file)


def test_keys_are_asked_for_and_a_new_one_works_within_seconds(stage: Stage) -> None:
    good, admin = key(stage, "team-a"), key(stage, "ops", scopes=("llm:admin",))
    service = with_keys(stage)
    assert service.ask("/v1/completions", PROMPT)[0] == 401
    assert service.ask("/v1/completions", PROMPT, f"{good}x")[0] == 401
    assert service.ask("/v1/completions", PROMPT, good)[0] == 200
    assert service.ask("/v1/completions", PROMPT, admin)[0] == 403
    assert service.ask("/health")[0] == 200
    assert service.ask("/metrics", None, good)[0] == 403
    status, text = service.ask("/metrics", None, admin)
    assert status == 200
    assert 'steelyard_auth_refusals_total{reason="missing"} 1.0' in text
    late = stage.run("keys", "new", "team-b", "--file", str(keys_file(stage))).stdout.strip()
    assert answers(service, late, 200), "a new key is never noticed"
    stage.run("keys", "revoke", late.split("-")[1], "--file", str(keys_file(stage)))
    assert answers(service, late, 401), "a revoked key goes on working"
    assert good not in service.stderr


def answers(service: Command, credentials: str, status: int, limit_s: float = 10) -> bool:
    """True once the service answers so."""
    end_s = time.monotonic() + limit_s
    while time.monotonic() < end_s:
        if service.ask("/v1/completions", PROMPT, credentials)[0] == status:
            return True
        time.sleep(0.1)
    return False


def test_limits_are_those_of_the_tenant_its_plan_or_everybody(stage: Stage) -> None:
    own, plan = key(stage, "team-a"), key(stage, "team-b", plan="gold")
    other, another = key(stage, "team-c"), key(stage, "team-d")
    service = with_keys(
        stage,
        default={"requests_per_minute": 1, "max_tokens": 5},
        plans={"gold": {"requests_per_minute": 2}},
        named={"team-a": {"requests_per_minute": 3, "max_tokens": None}},
    )
    allowed = {own: 3, plan: 2, other: 1}
    for credentials, count in allowed.items():
        statuses = [service.ask("/v1/completions", PROMPT, credentials)[0] for _ in range(4)]
        assert statuses == [200] * count + [429] * (4 - count)
    long = {**PROMPT, "max_tokens": 6}
    assert service.ask("/v1/completions", long, own)[0] == 429, "it is the budget that is spent"
    status, answer = service.ask("/v1/completions", long, another)
    assert (status, answer["error"]["param"]) == (400, "max_tokens")


@pytest.fixture(scope="module")
def idp() -> Any:
    with provider() as opened:
        yield opened


def with_tokens(stage: Stage, idp: Provider, **auth: Any) -> Command:
    jwt = {"issuer": ISSUER, "audience": [AUDIENCE], "jwks_url": idp.url}
    file = deployment(stage, gateway={"auth": {"mode": "jwt", "jwt": jwt, **auth}})
    return stage.serve("--config", file)


def test_tokens_are_asked_for_and_checked(stage: Stage, idp: Provider) -> None:
    issuer, now_s = Issuer(), time.time()
    revoked = stage.folder / "revoked.txt"
    revoked.write_text("sub mallory\n")
    service = with_tokens(stage, idp, revoked_file=str(revoked))

    def status(token: str | None) -> int:
        return service.ask("/v1/completions", PROMPT, token)[0]

    for kind in ("RSA", "EC", "OKP"):
        assert status(issuer.sign(claims(now_s), kind)) == 200
    refused = {
        "no token": None,
        "unsigned": issuer.forge({"alg": "none", "typ": "JWT"}, claims(now_s)),
        "another provider's": Issuer(1).sign(claims(now_s)),
        "expired": issuer.sign(claims(now_s - 1000)),
        "for somebody else": issuer.sign(claims(now_s, aud="other")),
        "revoked": issuer.sign(claims(now_s, sub="mallory")),
        "of no tenant": issuer.sign(claims(now_s, tenant=None)),
    }
    assert {name: status(token) for name, token in refused.items()} == dict.fromkeys(refused, 401)
    assert status(issuer.sign(claims(now_s, scope="other"))) == 403


def test_without_the_providers_keys_nobody_is_let_in(stage: Stage) -> None:
    with provider() as away:
        away.status = 500
        service = with_tokens(stage, away)
        status, answer = service.ask("/v1/completions", PROMPT, Issuer().token())
        assert (status, answer["error"]["code"]) == (503, "retry_later")
        assert service.ask("/v1/completions", PROMPT)[0] == 401


@pytest.mark.parametrize(
    ("content", "words"),
    [(None, "cannot be read"), ("nonsense\n", "line 1")],
)
def test_a_keys_file_that_cannot_be_used_ends_the_start(
    stage: Stage, content: str | None, words: str
) -> None:
    if content is not None:
        keys_file(stage).write_text(content)
    service = with_keys(stage)
    assert service.wait() == 1
    assert "gateway.auth.keys_file" in service.stderr
    assert words in service.stderr
