"""Good tokens are recognised, forged and unfit ones refused, whatever they look like."""

import base64
import json
from collections.abc import Callable
from typing import Any

import pytest
from cryptography.hazmat.primitives import serialization
from hypothesis import given, settings
from hypothesis import strategies as st

from steelyard.gateway.auth.refused import CredentialsRefused
from steelyard.gateway.auth.tokens import parse_revoked
from steelyard.gateway.caller import Access

from .issuer import NOW_S, Issuer, World, base64url, claims, key

IDP = Issuer()
STRANGER = Issuer(7)


def rsa_pem() -> bytes:
    return key("RSA").public_key.public_bytes(  # type: ignore[union-attr]
        serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo
    )


@pytest.mark.parametrize(
    ("kind", "algorithm"),
    [("RSA", "RS256"), ("EC", "ES256"), ("OKP", "EdDSA"), ("OKP", "Ed25519")],
)
async def test_a_token_of_the_provider_names_tenant_and_grants(kind: str, algorithm: str) -> None:
    world = World(plan_claim="plan")
    scope = "llm:infer model:small openid"
    token = IDP.token(kind, {"alg": algorithm}, plan="gold", scope=scope)
    caller = await world.verifier.identify(token)
    assert (caller.tenant, caller.plan) == ("team-a", "gold")
    assert caller.grants == {Access.OPEN, Access.KNOWN, Access.INFER}
    assert caller.models == frozenset({"small"})


async def test_grants_may_be_a_list_and_may_be_missing() -> None:
    world = World(scope_claim="scp")
    caller = await world.verifier.identify(world.token(scp=["llm:infer", "llm:admin"]))
    assert caller.may(Access.ADMIN)
    caller = await world.verifier.identify(world.token(jti="other"))
    assert not caller.may(Access.INFER)


def tampered(token: str) -> str:
    """The same signature under other claims."""
    head, _, tail = token.split(".")
    return f"{head}.{base64url(json.dumps(claims(tenant='victim')).encode())}.{tail}"


def raw_claims(text: str) -> Callable[[], str]:
    """Properly signed claims that `json.dumps` would not write."""
    usual = json.dumps(claims(exp=None))[:-1]
    return lambda: IDP.sign(f"{usual},{text}}}".encode())


ATTACKS: dict[str, tuple[str, Callable[[], str]]] = {
    # Algorithms.
    "alg none": ("malformed", lambda: IDP.forge({"alg": "none"}, claims())),
    "alg none with a signature": ("key", lambda: IDP.forge({"alg": "none"}, claims(), b"x" * 64)),
    "alg None": ("key", lambda: IDP.forge({"alg": "None"}, claims(), b"x")),
    "alg null": ("key", lambda: IDP.forge({"alg": None}, claims(), b"x")),
    "alg a list": ("key", lambda: IDP.forge({"alg": ["ES256"]}, claims(), b"x")),
    "no alg": ("malformed", lambda: IDP.forge({"kid": "ec"}, claims(), b"x")),
    "HS256 with the public RSA key": ("key", lambda: IDP.hmac_forgery(rsa_pem())),
    "HS256 with an empty secret": ("key", lambda: IDP.hmac_forgery(b"")),
    "RS512, which is not accepted": ("key", lambda: IDP.token("RSA", {"alg": "RS512"})),
    "PS256, which is not accepted": ("key", lambda: IDP.token("RSA", {"alg": "PS256"})),
    "ES256 with the RSA key's id": ("key", lambda: IDP.token("EC", {"kid": "rsa"})),
    # Keys.
    "another issuer's key under our id": ("signature", lambda: STRANGER.token("EC", {"kid": "ec"})),
    "unknown key id": ("key", lambda: IDP.token("EC", {"kid": "made-up"})),
    "key id that is a path": ("key", lambda: IDP.token("EC", {"kid": "../../dev/null"})),
    "key id that is a number": (
        "malformed",
        lambda: IDP.forge({"alg": "ES256", "kid": 1}, claims(), b"x"),
    ),
    "embedded jwk": (
        "key",
        lambda: STRANGER.token("EC", {"jwk": STRANGER.public("EC")}),
    ),
    "embedded jwk under our id": (
        "signature",
        lambda: STRANGER.token("OKP", {"jwk": STRANGER.public("OKP"), "kid": "okp"}),
    ),
    "jku": ("key", lambda: STRANGER.token("EC", {"jku": "https://evil.test/keys"})),
    "x5u": ("key", lambda: STRANGER.token("EC", {"x5u": "https://evil.test/cert"})),
    # Headers.
    "unknown crit": ("malformed", lambda: IDP.forge({"alg": "ES256", "crit": ["x"]}, {}, b"x")),
    "empty crit": ("malformed", lambda: IDP.forge({"alg": "ES256", "crit": []}, {}, b"x")),
    "unencoded payload": (
        "malformed",
        lambda: IDP.forge({"alg": "ES256", "crit": ["b64"], "b64": False}, claims(), b"x"),
    ),
    "header that is a text": ("malformed", lambda: IDP.forge("alg", claims(), b"x")),
    "header that is a list": ("malformed", lambda: IDP.forge(["alg"], claims(), b"x")),
    "header that is a number": ("malformed", lambda: IDP.forge(1, claims(), b"x")),
    "header of a kilobyte": (
        "malformed",
        lambda: IDP.forge({"alg": "ES256", "pad": "x" * 1000}, claims(), b"x"),
    ),
    "ID token where the type says so": ("type", lambda: IDP.token("EC", {"typ": "id+jwt"})),
    "type that is a list": (
        "malformed",
        lambda: IDP.forge({"alg": "ES256", "typ": ["JWT"]}, claims(), b"x"),
    ),
    # Forms.
    "an encrypted token": ("malformed", lambda: "e30.e30.e30.e30.e30"),
    "two parts": ("malformed", lambda: "e30.e30"),
    "an empty part": ("malformed", lambda: "e30..e30"),
    "padding": ("malformed", lambda: IDP.token() + "="),
    "the other base64": (
        "malformed",
        lambda: IDP.token().replace("_", "/").replace("-", "+") + "/",
    ),
    "eight kilobytes and more": ("malformed", lambda: "e30.e30." + "x" * 8192),
    "tampered claims": ("signature", lambda: tampered(IDP.token("OKP"))),
    "a cut signature": ("signature", lambda: IDP.token("OKP")[:-8]),
    "a signature of zeroes": (
        "signature",
        lambda: IDP.token("EC").rpartition(".")[0] + "." + base64url(bytes(64)),
    ),
    # Claims.
    "another issuer": ("issuer", lambda: IDP.token(iss="https://evil.test/")),
    "issuer that is a list": ("issuer", lambda: IDP.token(iss=["https://idp.test/"])),
    "no issuer": ("issuer", lambda: IDP.token(iss=None)),
    "another audience": ("issuer", lambda: IDP.token(aud="other")),
    "audience that is nearly ours": ("issuer", lambda: IDP.token(aud=["steelyard2", "Steelyard"])),
    "audience that is a number": ("claims", lambda: IDP.token(aud=1)),
    "no audience": ("claims", lambda: IDP.token(aud=None)),
    "expired": ("expired", lambda: IDP.token(iat=NOW_S - 400, exp=NOW_S - 31)),
    "no exp": ("claims", lambda: IDP.token(exp=None)),
    "exp that is a text": ("claims", lambda: IDP.token(exp=str(NOW_S + 60))),
    "exp that is true": ("claims", lambda: IDP.token(exp=True)),
    "exp that is null": ("claims", raw_claims('"exp":null')),
    "exp of 10^30": ("lifetime", raw_claims('"exp":1' + "0" * 30)),
    "exp of 1e400": ("claims", raw_claims('"exp":1e400')),
    "exp of 4,000 digits": ("lifetime", raw_claims('"exp":' + "9" * 4000)),
    "exp that is NaN": ("claims", raw_claims('"exp":NaN')),
    "exp that is Infinity": ("claims", raw_claims('"exp":Infinity')),
    "exp before 1970": ("lifetime", lambda: IDP.token(exp=-1)),
    "valid for a year": ("lifetime", lambda: IDP.token(exp=NOW_S + 31_536_000)),
    "valid for a second too long": ("lifetime", lambda: IDP.token(exp=NOW_S + 86_401)),
    "no iat": ("claims", lambda: IDP.token(iat=None)),
    "iat in the future": ("not_yet_valid", lambda: IDP.token(iat=NOW_S + 31)),
    "nbf in the future": ("not_yet_valid", lambda: IDP.token(nbf=NOW_S + 31)),
    "nbf that is a text": ("claims", lambda: IDP.token(nbf="0")),
    "no tenant": ("claims", lambda: IDP.token(tenant=None)),
    "empty tenant": ("claims", lambda: IDP.token(tenant="")),
    "tenant that is a number": ("claims", lambda: IDP.token(tenant=1)),
    "tenant with a line break": ("claims", lambda: IDP.token(tenant="a\nb")),
    "tenant of a kilobyte": ("claims", lambda: IDP.token(tenant="a" * 1000)),
    "scopes that are no texts": ("claims", lambda: IDP.token(scope=[1])),
    "a thousand scopes": ("claims", lambda: IDP.token(scope=" x" * 1000)),
    "claims that are a list": ("claims", lambda: IDP.sign(b"[]")),
    "claims that are no JSON": ("claims", lambda: IDP.sign(b"{")),
    "claims that are no UTF-8": ("claims", lambda: IDP.sign(b'{"a":"\xff"}')),
    "claims nested deeply": ("claims", lambda: IDP.sign(b"[" * 5000)),
}


@pytest.mark.parametrize("name", ATTACKS)
async def test_the_attack_is_refused(name: str) -> None:
    reason, make = ATTACKS[name]
    world = World()
    await world.verifier.identify(world.token())  # keys are there
    with pytest.raises(CredentialsRefused) as refused:
        await world.verifier.identify(make())
    assert refused.value.reason == reason


@given(token=st.from_regex(r"[A-Za-z0-9._~+/-]{0,200}", fullmatch=True))
@settings(max_examples=300, deadline=None)
async def test_nothing_made_up_is_let_in(token: str) -> None:
    with pytest.raises(CredentialsRefused):
        await WORLD.verifier.identify(token)


@given(at=st.integers(0, 10_000), byte=st.integers(0, 255))
@settings(max_examples=300, deadline=None)
async def test_a_token_with_any_bit_changed_is_refused(at: int, byte: int) -> None:
    parts = [_decoded(part) for part in GOOD.split(".")]
    at %= sum(map(len, parts))
    for part in parts:
        if at < len(part):
            if part[at] == byte:
                return
            part[at] = byte
            break
        at -= len(part)
    with pytest.raises(CredentialsRefused):
        await WORLD.verifier.identify(".".join(base64url(bytes(part)) for part in parts))


WORLD = World()
GOOD = WORLD.token("OKP")


def _decoded(part: str) -> bytearray:
    return bytearray(base64.urlsafe_b64decode(part + "=" * (-len(part) % 4)))


async def test_clocks_may_differ_by_the_leeway() -> None:
    world = World()
    for moved in (
        {"exp": NOW_S - 29, "iat": NOW_S - 100},
        {"iat": NOW_S + 29},
        {"nbf": NOW_S + 29},
    ):
        await world.verifier.identify(IDP.token(**moved))


async def test_a_token_is_checked_again_for_its_time_whenever_it_comes() -> None:
    world = World()
    token = world.token()
    await world.verifier.identify(token)
    world.clock.jump(329)
    await world.verifier.identify(token)
    world.clock.jump(1)
    with pytest.raises(CredentialsRefused) as refused:
        await world.verifier.identify(token)
    assert refused.value.reason == "expired"


@pytest.mark.parametrize("entry", [("jti", "token-1"), ("sub", "user-1")])
async def test_a_revoked_token_is_refused_although_it_was_just_accepted(
    entry: tuple[str, str],
) -> None:
    world = World()
    token = world.token()
    await world.verifier.identify(token)
    world.revoked = frozenset({entry})
    with pytest.raises(CredentialsRefused) as refused:
        await world.verifier.identify(token)
    assert refused.value.reason == "revoked"
    await world.verifier.identify(world.token(jti="token-2", sub="user-2"))


async def test_a_token_is_verified_again_when_the_providers_keys_are_others() -> None:
    world = World()
    token = world.token("EC")
    await world.verifier.identify(token)
    world.answer = IDP.key_set("RSA")
    await world.keys.refresh()
    with pytest.raises(CredentialsRefused) as refused:
        await world.verifier.identify(token)
    assert refused.value.reason == "key"


async def test_a_signature_is_trusted_for_a_minute_at_most(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    world = World()
    token = world.token()
    verified = _count_verifications(monkeypatch)
    for _ in range(3):
        await world.verifier.identify(token)
    assert verified == [1]
    world.clock.jump(60)
    await world.verifier.identify(token)
    assert verified == [2]


async def test_only_so_many_tokens_are_remembered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("steelyard.gateway.auth.tokens._REMEMBERED", 3)
    world = World()
    tokens = [world.token(jti=str(i)) for i in range(5)]
    verified = _count_verifications(monkeypatch)
    for token in tokens:
        await world.verifier.identify(token)
    for token in reversed(tokens):
        await world.verifier.identify(token)
    assert verified == [7]
    assert len(world.verifier._verified) == 3


def _count_verifications(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    from steelyard.gateway.auth import tokens

    count = [0]
    validate = tokens.jws.validate_compact

    def counted(*arguments: Any, **options: Any) -> bool:
        count[0] += 1
        return validate(*arguments, **options)

    monkeypatch.setattr(tokens.jws, "validate_compact", counted)
    return count


async def test_without_a_key_id_a_token_is_good_only_if_one_key_fits() -> None:
    world = World()
    await world.verifier.identify(IDP.token("RSA", {"kid": None}))
    second = {**Issuer(1).public("RSA"), "kid": "rsa-1"}
    world.answer = json.dumps({"keys": [IDP.public("RSA"), second]}).encode()
    await world.keys.refresh()
    with pytest.raises(CredentialsRefused):
        await world.verifier.identify(IDP.token("RSA", {"kid": None}, jti="other"))


def test_the_list_of_revoked_tokens_has_a_line_for_each() -> None:
    text = b"# left the company\nsub  user-17\n\njti abc def\n"
    assert parse_revoked(text) == {("sub", "user-17"), ("jti", "abc def")}
    for bad in (b"jti\n", b"tenant x\n", b"abc\n", b"\xff\n"):
        with pytest.raises(ValueError):
            parse_revoked(bad)
