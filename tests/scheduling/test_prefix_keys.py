"""Equal keys mean equal prefixes of equal salt, however the keys came about."""

import hashlib
import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from steelyard.scheduling.prefix_keys import PrefixKeys

tokens = st.lists(st.integers(0, 2**31 - 1), max_size=40)


def keys_of(token_ids: list[int], salt: str = "", granule: int = 4) -> list[bytes]:
    keys: list[bytes] = []
    blocks = len(token_ids) // granule
    PrefixKeys(granule).extend(keys, token_ids, blocks=blocks, salt=salt)
    return keys


def test_a_key_chains_the_one_before_it_and_little_endian_tokens() -> None:
    root = PrefixKeys.root("tenant")
    first = hashlib.sha256(root + struct.pack("<4i", 1, 2, 3, 4)).digest()
    second = hashlib.sha256(first + struct.pack("<4i", 5, 6, 7, 8)).digest()
    assert keys_of([1, 2, 3, 4, 5, 6, 7, 8, 9], salt="tenant") == [first, second]


def test_the_root_of_this_format_never_changes() -> None:
    # Keys outlive a process in other tiers: a change here must change the format version.
    assert PrefixKeys.root("").hex().startswith("bf7ac85720a70681")


@given(tokens, st.lists(st.integers(0, 10), max_size=5))
def test_keys_grown_bit_by_bit_equal_keys_made_at_once(
    token_ids: list[int], cuts: list[int]
) -> None:
    grown: list[bytes] = []
    for blocks in [*sorted(min(cut, len(token_ids) // 4) for cut in cuts), len(token_ids) // 4]:
        PrefixKeys(4).extend(grown, token_ids, blocks=blocks, salt="s")
    assert grown == keys_of(token_ids, "s")


@given(tokens, tokens)
def test_two_sequences_share_keys_exactly_as_far_as_their_full_blocks_agree(
    left: list[int], right: list[int]
) -> None:
    shared = 0
    while left[shared : shared + 4] == right[shared : shared + 4] and shared + 4 <= min(
        len(left), len(right)
    ):
        shared += 4
    pairs = list(zip(keys_of(left), keys_of(right), strict=False))
    assert [a == b for a, b in pairs] == [index < shared // 4 for index in range(len(pairs))]


@given(tokens.filter(lambda t: len(t) >= 4), st.text(max_size=5), st.text(max_size=5))
def test_different_salts_share_nothing(token_ids: list[int], left: str, right: str) -> None:
    common = set(keys_of(token_ids, left)) & set(keys_of(token_ids, right))
    assert bool(common) == (left == right)


def test_a_different_granule_gives_different_keys() -> None:
    token_ids = list(range(16))
    assert not set(keys_of(token_ids, granule=4)) & set(keys_of(token_ids, granule=8))


def test_a_number_that_is_no_int32_is_an_error_and_not_another_key() -> None:
    with pytest.raises(struct.error):
        keys_of([2**31, 0, 0, 0])
