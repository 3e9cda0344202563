"""Who shares cached prefixes with whom."""

from hypothesis import example, given
from hypothesis import strategies as st

from steelyard.gateway.cache_salt import CacheSalts

from .doors import Door
from .wire import post

SALTS = CacheSalts(b"secret")
names = st.text(max_size=8)


@example("a\x00b", None, "a", "b")
@example("", None, "", "")
@given(names, st.none() | names, names, st.none() | names)
def test_salts_are_equal_only_for_the_same_tenant_and_client_salt(
    tenant: str, salt: str | None, other: str, other_salt: str | None
) -> None:
    same = (tenant, salt) == (other, other_salt)
    assert (SALTS.salt(tenant, salt) == SALTS.salt(other, other_salt)) == same


def test_salts_cannot_be_computed_without_the_secret() -> None:
    assert CacheSalts(b"another").salt("default") != SALTS.salt("default")


def test_a_client_cannot_name_another_tenants_salt() -> None:
    assert SALTS.salt("b", SALTS.salt("a")) != SALTS.salt("a")


def test_a_clients_salt_parts_its_requests_from_the_others(door: Door) -> None:
    ask = {"model": "fake", "prompt": "x" * 64, "max_tokens": 1}

    def cached(**changes: str) -> int:
        usage = post(door, "/v1/completions", ask | changes).json["usage"]
        return usage["prompt_tokens_details"]["cached_tokens"]

    assert cached() == 0
    assert cached() == 64
    assert cached(cache_salt="mine") == 0
    assert cached(cache_salt="mine") == 64
    stolen = door.engine.recent_requests[0].cache_salt
    assert cached(cache_salt=stolen) == 0
