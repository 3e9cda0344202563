"""Lengths of prompts and answers."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from steelyard.contract.errors import InvalidRequest
from steelyard.lab.load import ARTICLE_MIX, Fixed, Lengths, Mixture, Samples, Share, Uniform
from steelyard.lab.load.lengths import draw_lengths, parse_lengths

_TOKENS = st.integers(1, 10_000)
_RANGES = st.tuples(_TOKENS, _TOKENS).map(lambda ends: Uniform(min(ends), max(ends)))
_PLAIN = st.one_of(
    st.builds(Fixed, _TOKENS),
    _RANGES,
    st.lists(_TOKENS, min_size=1, max_size=9).map(lambda seen: Samples(tuple(seen))),
)
LENGTHS = st.one_of(
    _PLAIN,
    st.lists(st.builds(Share, st.floats(0.01, 100), _PLAIN), min_size=1, max_size=4).map(
        lambda shares: Mixture(tuple(shares))
    ),
)


@given(LENGTHS, st.integers(0, 500), st.integers(0, 1000))
def test_as_many_lengths_as_asked_all_of_them_possible(
    lengths: Lengths, count: int, seed: int
) -> None:
    drawn = draw_lengths(lengths, count, np.random.default_rng(seed))
    assert drawn.shape == (count,)
    assert all(_can_give(lengths, int(tokens)) for tokens in drawn)


def test_the_articles_mix_is_met_exactly() -> None:
    drawn = draw_lengths(ARTICLE_MIX, 1000, np.random.default_rng(0))
    assert np.sum(drawn < 512) == 800
    assert np.sum(drawn > 2048) == 200
    assert not np.all(drawn[:200] < 512), "the parts must be shuffled"


@pytest.mark.parametrize(
    ("text", "lengths"),
    [
        ("128", Fixed(128)),
        ("64-512", Uniform(64, 512)),
        ("article", ARTICLE_MIX),
        ("0.8*32-511, 0.2*4000", Mixture((Share(0.8, Uniform(32, 511)), Share(0.2, Fixed(4000))))),
    ],
)
def test_lengths_are_written_as_numbers_ranges_and_mixtures(text: str, lengths: Lengths) -> None:
    assert parse_lengths(text) == lengths


@pytest.mark.parametrize("text", ["", "0", "9-3", "x", "0*5,1*6", "5-", "1.5", "3,"])
def test_what_is_no_length_is_refused(text: str) -> None:
    with pytest.raises(InvalidRequest):
        parse_lengths(text)


def _can_give(lengths: Lengths, tokens: int) -> bool:
    match lengths:
        case Fixed(only):
            return tokens == only
        case Uniform(low, high):
            return low <= tokens <= high
        case Samples(seen):
            return tokens in seen
        case Mixture(shares):
            return any(_can_give(share.lengths, tokens) for share in shares)
