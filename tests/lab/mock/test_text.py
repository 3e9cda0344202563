"""Text that anyone can count: words, and a known number of them per token."""

import pytest

from steelyard.lab.mock.text import VOCABULARY_TOKENS, MockText, TokenSequence, word


@pytest.mark.parametrize("ratio", [0.3, 0.5, 1.0, 1.5, 2.0, 3.7])
def test_clients_count_the_promised_words_at_every_length(ratio: float) -> None:
    text, tokens = MockText(ratio), TokenSequence(b"prompt", 1)
    answer = b""
    for position in range(200):
        piece = text.piece(tokens[position], position)
        assert piece
        answer += piece
        assert len(answer.split()) == text.words(position + 1)
    assert text.words(200) == pytest.approx(200 * ratio, abs=1)


def test_every_token_is_its_own_word_without_spaces_or_quotes() -> None:
    words = {word(token_id) for token_id in range(VOCABULARY_TOKENS)}
    assert len(words) == VOCABULARY_TOKENS
    assert all(one.isascii() and one.isalpha() for one in words)


def test_answers_depend_on_prompt_and_seed_alone() -> None:
    def ids(prompt: bytes, seed: int) -> list[int]:
        tokens = TokenSequence(prompt, seed)
        return [tokens[position] for position in range(50)]

    assert ids(b"a", 1) == ids(b"a", 1)
    assert ids(b"a", 1) != ids(b"b", 1)
    assert ids(b"a", 1) != ids(b"a", 2)
    assert all(0 <= token_id < VOCABULARY_TOKENS for token_id in ids(b"a", 1))


def test_prompts_are_counted_by_the_same_rule() -> None:
    assert MockText(1).prompt_tokens("one two  three\nfour") == 4
    assert MockText(2).prompt_tokens("one two three four") == 2
