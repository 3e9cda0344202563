"""Nothing but health is to be had without credentials, whatever the method: deny by default."""

import pytest

from steelyard.gateway.caller import Access

from ..conftest import OpenDoor
from ..doors import Door
from ..wire import get
from .keyring import Keyring, bearer

METHODS = (
    "GET",
    "HEAD",
    "POST",
    "PUT",
    "PATCH",
    "DELETE",
    "OPTIONS",
    "TRACE",
    "CONNECT",
    "PROPFIND",
)

ELSEWHERE = (
    "/nothing",
    "/v1",
    "/v1/",
    "/v1/chat/completions/",
    "/v1/chat/completions/x",
    "//v1/chat/completions",
    "/./v1/chat/completions",
    "/V1/chat/completions",
    "/v1/chat%2Fcompletions%00",
    "/health/../v1/models",
    "/health;/v1/models",
    "/admin/status",
    "/invocations",
    "/pause",
    "/docs",
    "/openapi.json",
    "/favicon.ico",
)
"""Paths that other servers have open, and ways around a table of paths."""

GRANTED = {
    "nobody": set[Access](),
    "nothing": {Access.KNOWN},
    "infer": {Access.KNOWN, Access.INFER},
    "admin": {Access.KNOWN, Access.ADMIN},
}


@pytest.fixture
def door(keyring: Keyring, make_door: OpenDoor) -> Door:
    return make_door(keyring.gateway())


def test_without_a_token_every_method_of_every_route_is_refused(door: Door) -> None:
    for route in door.gateway.routes:
        path = route.template.replace("*", "fake")
        for method in METHODS:
            reply = get(door, path, method=method)
            if route.access is Access.OPEN:
                assert reply.status in (200, 204, 404, 405), (method, path)
            else:
                # The target of CONNECT is no path (RFC 9112), so it names nothing that exists.
                expected = 404 if method == "CONNECT" else 401
                assert reply.status == expected, (method, path, reply.status)
                if expected == 401:
                    assert reply.headers["www-authenticate"] == 'Bearer realm="steelyard"'


def test_only_health_asks_for_nothing(door: Door) -> None:
    open_routes = {r.template for r in door.gateway.routes if r.access is Access.OPEN}
    assert open_routes == {"/health", "/readiness"}


@pytest.mark.parametrize("path", ELSEWHERE)
@pytest.mark.parametrize("method", ["GET", "POST", "DELETE", "OPTIONS"])
def test_what_is_not_in_the_table_does_not_exist(door: Door, method: str, path: str) -> None:
    assert get(door, path, method=method).status in (400, 401, 404)


@pytest.mark.parametrize("who", GRANTED)
def test_each_grant_opens_its_own_routes_and_no_others(
    door: Door, keyring: Keyring, who: str
) -> None:
    fields = [] if who == "nobody" else [bearer(getattr(keyring, who))]
    for route in door.gateway.routes:
        if route.access is Access.OPEN:
            continue
        path = route.template.replace("*", "fake")
        for method in ("GET", "POST", "DELETE", "OPTIONS"):
            status = get(door, path, *fields, method=method).status
            if route.access in GRANTED[who]:
                assert status not in (401, 403, 404), (method, path, status)
            else:
                assert status == (401 if who == "nobody" else 403), (method, path, status)


def test_a_missing_grant_is_named(door: Door, keyring: Keyring) -> None:
    reply = get(door, "/metrics", bearer(keyring.infer))
    assert reply.status == 403
    assert reply.error["code"] == "permission_denied"
    assert "llm:admin" in reply.error["message"]
    assert reply.headers["www-authenticate"] == (
        'Bearer realm="steelyard", error="insufficient_scope", scope="llm:admin"'
    )


def test_a_browser_may_ask_before_it_sends_credentials(
    keyring: Keyring, make_door: OpenDoor
) -> None:
    door = make_door(keyring.gateway(cors_origins=("https://app.test",)))
    asked = ("origin: https://app.test", "access-control-request-method: POST")
    assert get(door, "/v1/chat/completions", *asked, method="OPTIONS").status == 204
    reply = get(door, "/v1/models", "origin: https://app.test")
    assert reply.status == 401
    assert reply.headers["access-control-allow-origin"] == "https://app.test"


def test_metrics_can_be_kept_off_the_door(keyring: Keyring, make_door: OpenDoor) -> None:
    door = make_door(keyring.gateway(has_metrics=False))
    assert get(door, "/metrics", bearer(keyring.admin)).status == 404
