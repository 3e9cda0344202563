"""Where answers part, and whether rounding explains it."""

from steelyard.lab.verify.answers import Choice, Token
from steelyard.lab.verify.ties import divergence


def choice(*tokens: tuple[str, float, dict[str, float]], text: str | None = None) -> Choice:
    made = tuple(Token(t, value, tuple(top.items())) for t, value, top in tokens)
    content = "".join(t for t, _, _ in tokens) if text is None else text
    return Choice(index=0, content=content, finish_reason="length", tokens=made)


START = ("a", -0.1, {"a": -0.1, "b": -3.0})


def test_equal_answers_do_not_part() -> None:
    assert divergence(choice(START), choice(START), 0.3) is None


def test_a_small_gap_on_both_sides_is_a_tie() -> None:
    left = choice(START, ("x", -0.70, {"x": -0.70, "y": -0.72}))
    right = choice(START, ("y", -0.69, {"y": -0.69, "x": -0.75}))
    found = divergence(left, right, 0.3)
    assert found is not None and found.is_tie
    assert (found.position, found.left, found.right) == (1, "x", "y")


def test_a_clear_choice_on_one_side_is_no_tie() -> None:
    left = choice(START, ("x", -0.70, {"x": -0.70, "y": -0.72}))
    right = choice(START, ("y", -0.01, {"y": -0.01, "x": -5.0}))
    found = divergence(left, right, 0.3)
    assert found is not None and not found.is_tie
    assert found.right_gap_nats is not None and abs(found.right_gap_nats - 4.99) < 1e-9


def test_a_token_the_other_side_does_not_even_list_is_no_tie() -> None:
    left = choice(START, ("x", -0.70, {"x": -0.70, "z": -1.2}))
    right = choice(START, ("y", -0.70, {"y": -0.70, "z": -1.2}))
    found = divergence(left, right, 0.3)
    assert found is not None and not found.is_tie


def test_an_early_end_is_a_tie_only_where_the_choice_was_close() -> None:
    close = choice(START, ("x", -0.7, {"x": -0.7, "<end>": -0.8}))
    clear = choice(START, ("x", -0.1, {"x": -0.1, "<end>": -4.0}))
    ended = choice(START)
    assert divergence(close, ended, 0.3).is_tie  # type: ignore[union-attr]
    assert not divergence(ended, clear, 0.3).is_tie  # type: ignore[union-attr]


def test_without_log_probabilities_no_difference_is_a_tie() -> None:
    left = Choice(index=0, content="abc", finish_reason="stop")
    right = Choice(index=0, content="abd", finish_reason="stop")
    found = divergence(left, right, 0.3)
    assert found is not None and found.position == 2 and not found.is_tie


def test_equal_tokens_with_another_text_part() -> None:
    found = divergence(choice(START, text="a"), choice(START, text="A"), 0.3)
    assert found is not None and not found.is_tie
