"""Of what a provider publishes, only public keys for signatures are used, each for its own kind."""

import json
from typing import Any

import pytest
from joserfc.jwk import ECKey, OKPKey

from steelyard.gateway.auth.key_set import parse_key_set

from .issuer import Issuer, base64url

ALL = frozenset({"RS256", "RS512", "PS256", "ES256", "ES384", "EdDSA", "Ed25519"})
IDP = Issuer()
RSA, EC, OKP = (IDP.public(kind) for kind in ("RSA", "EC", "OKP"))


def key_set(*keys: Any) -> bytes:
    return json.dumps({"keys": list(keys)}).encode()


def test_a_key_verifies_what_its_type_and_curve_allow_and_nothing_else() -> None:
    p384 = {**ECKey.generate_key("P-384").as_dict(private=False), "kid": "p384"}
    found = parse_key_set(key_set(RSA, EC, OKP, p384), ALL)
    able = {key.kid: set(key.algorithms) for key in found.keys}
    assert able == {
        "rsa": {"RS256", "RS512", "PS256"},
        "ec": {"ES256"},
        "p384": {"ES384"},
        "okp": {"EdDSA", "Ed25519"},
    }
    assert found.find("rsa", "ES256") is None
    assert found.find("ec", "RS256") is None


def test_a_keys_own_algorithm_narrows_what_it_verifies() -> None:
    found = parse_key_set(key_set({**RSA, "alg": "RS512"}, {**OKP, "alg": "Ed25519"}), ALL)
    assert found.find("rsa", "RS256") is None
    assert found.find("rsa", "RS512") is not None
    assert found.find("okp", "EdDSA") is not None


@pytest.mark.parametrize(
    "unfit",
    [
        {"kty": "oct", "k": "c2VjcmV0", "kid": "x"},
        {**RSA, "use": "enc"},
        {**RSA, "key_ops": ["encrypt"]},
        {**RSA, "key_ops": "verify"},
        {**RSA, "alg": "RSA-OAEP"},
        {**RSA, "alg": ["RS256"]},
        {**RSA, "kid": 7},
        {**RSA, "n": 7},
        {**RSA, "n": "!"},
        {**RSA, "n": ""},
        {"kty": "RSA"},
        {"kty": ["RSA"]},
        {**EC, "crv": "P-256K"},
        {**EC, "x": EC["y"]},
        {**OKP, "crv": "X25519"},
        {**OKP, "crv": "Ed448"},
        {**RSA, "n": base64url(bytes([255]) * 128)},
        {**RSA, "n": base64url(bytes([255]) * 1025)},
        {},
    ],
)
def test_what_cannot_verify_is_left_out_and_spoils_nothing(unfit: dict[str, Any]) -> None:
    found = parse_key_set(key_set(unfit, EC), ALL)
    assert [key.kid for key in found.keys] == ["ec"]
    with pytest.raises(ValueError, match="none of the 1 keys"):
        parse_key_set(key_set(unfit), ALL)


def test_private_members_are_not_even_kept() -> None:
    private = OKPKey.generate_key("Ed25519", private=True).as_dict(private=True)
    (found,) = parse_key_set(key_set(private), ALL).keys
    assert not found.key.is_private


def test_a_set_may_not_hold_more_keys_than_any_provider_has() -> None:
    with pytest.raises(ValueError, match="more than 100"):
        parse_key_set(key_set(*[EC] * 101), ALL)


def test_order_and_content_tell_whether_a_set_has_changed() -> None:
    first = parse_key_set(key_set(RSA, EC), ALL)
    assert parse_key_set(key_set(RSA, EC), ALL).is_same_as(first)
    assert not parse_key_set(key_set(RSA), ALL).is_same_as(first)
    other = {**Issuer(1).public("EC"), "kid": "ec"}
    assert not parse_key_set(key_set(RSA, other), ALL).is_same_as(first)
