"""Which checks patterns select."""

import pytest

from steelyard.contract.errors import InvalidRequest
from steelyard.lab.verify import all_claims, select


def names(only: tuple[str, ...] = (), skip: tuple[str, ...] = ()) -> set[str]:
    return {claim.name for claim in select(all_claims(), only, skip)}


def test_no_pattern_selects_everything() -> None:
    assert names() == {claim.name for claim in all_claims()}


def test_names_are_unique_and_every_claim_is_a_sentence() -> None:
    claims = all_claims()
    assert len({claim.name for claim in claims}) == len(claims)
    assert all(claim.proves.endswith(".") and claim.hint.endswith((".", "?")) for claim in claims)


def test_an_area_stands_for_all_it_holds() -> None:
    assert names(("stops",)) == names(("stops.*",))
    assert "stops.one.chat" in names(("stops",))


def test_patterns_may_name_an_endpoint_of_all_areas() -> None:
    chosen = names(("*.chat",))
    assert chosen and all(name.endswith(".chat") for name in chosen)


def test_skipping_wins() -> None:
    assert names(("stops",), ("*.text",)) == {
        name for name in names(("stops",)) if not name.endswith(".text")
    }


def test_a_pattern_that_names_nothing_is_an_error() -> None:
    with pytest.raises(InvalidRequest, match="stopps"):
        names(("stopps.*",))
    with pytest.raises(InvalidRequest):
        names((), ("no-such-check",))
