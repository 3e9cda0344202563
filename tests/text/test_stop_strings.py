"""Stop strings are found wherever the text is cut, and nothing more than needed is held back."""

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from steelyard.text import StopMatcher

TEXTS = st.text(alphabet="ab\né", max_size=40)
STOPS = st.lists(st.text(alphabet="ab\né", max_size=5), max_size=5)


def naive(text: str, stops: list[str]) -> tuple[str, str | None]:
    """The definition: the stop string that is complete first, the longest of several."""
    for end in range(1, len(text) + 1):
        found = [stop for stop in stops if stop and text[:end].endswith(stop)]
        if found:
            stop = max(found, key=len)
            return text[: end - len(stop)], stop
    return text, None


@st.composite
def cut_texts(draw: st.DrawFn) -> list[str]:
    text = draw(TEXTS)
    cuts = sorted(draw(st.lists(st.integers(0, len(text)), max_size=8)))
    return [text[a:b] for a, b in zip([0, *cuts], [*cuts, len(text)], strict=True)]


@given(pieces=cut_texts(), stops=STOPS)
def test_the_result_is_that_of_the_definition_however_the_text_is_cut(
    pieces: list[str], stops: list[str]
) -> None:
    matcher = StopMatcher(stops)
    shown = "".join([matcher.push(piece) for piece in pieces]) + matcher.flush()
    assert (shown, matcher.stop) == naive("".join(pieces), stops)


@given(pieces=cut_texts(), stops=STOPS)
def test_exactly_what_could_begin_a_stop_string_is_held_back(
    pieces: list[str], stops: list[str]
) -> None:
    matcher, text, shown = StopMatcher(stops), "", ""
    for piece in pieces:
        shown += matcher.push(piece)
        text += piece
        if matcher.stop is not None:
            break
        beginnings = [
            length
            for length in range(len(text) + 1)
            if any(stop.startswith(text[len(text) - length :]) for stop in stops if stop)
        ]
        assert shown == text[: len(text) - max(beginnings, default=0)]


def test_without_stop_strings_text_passes_at_once() -> None:
    for stops in ([], ["", ""]):
        matcher = StopMatcher(stops)
        assert matcher.push("any text") == "any text"
        assert matcher.flush() == ""
        assert matcher.stop is None


def test_after_a_match_nothing_more_is_shown() -> None:
    matcher = StopMatcher(["STOP"])
    assert matcher.push("go STO") == "go "
    assert matcher.push("P and more STOP") == ""
    assert matcher.stop == "STOP"
    assert matcher.push("more") == ""
    assert matcher.flush() == ""


@pytest.mark.parametrize(
    ("stops", "text", "shown", "stop"),
    [
        (["bc", "abcd"], "xabcd", "xa", "bc"),
        (["abc", "c"], "xabc", "x", "abc"),
        (["abcd", "bcx"], "abcx", "a", "bcx"),
        (["aab"], "aaaab", "aa", "aab"),
        (["👍🏽"], "ok 👍🏽!", "ok ", "👍🏽"),
    ],
)
def test_overlapping_stop_strings(stops: list[str], text: str, shown: str, stop: str) -> None:
    matcher = StopMatcher(stops)
    assert "".join([matcher.push(letter) for letter in text]) == shown
    assert matcher.stop == stop


def test_many_and_nasty_stop_strings_cost_no_more_per_letter() -> None:
    """A thousand stop strings that all nearly match all the time."""
    matcher = StopMatcher(["a" * length + "b" for length in range(1, 1001)])
    text = "a" * 100_000
    start_s = time.perf_counter()
    for at in range(0, len(text), 4):
        matcher.push(text[at : at + 4])
    assert time.perf_counter() - start_s < 2.0
    assert matcher.stop is None
    assert matcher.flush() == "a" * 1000
