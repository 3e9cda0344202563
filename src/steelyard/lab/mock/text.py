"""The mock's tokens: made-up words, so that anyone can count them by splitting at spaces.

Token ids are the numbers below `VOCABULARY_TOKENS`. With `client_tokens_per_token` = r, the first
n tokens of an answer hold ceil(n · r) words: a token is one word, several words, or the end of the
word before it. So a client that counts words disagrees with the server by a known factor.
"""

import math
import zlib

__all__ = ["VOCABULARY_TOKENS", "MockText", "TokenSequence", "word"]

_CONSONANTS = "bdfghjklmnprstvz"
_VOWELS = "aeio"
_SYLLABLES = len(_CONSONANTS) * len(_VOWELS)
VOCABULARY_TOKENS = _SYLLABLES * _SYLLABLES


def word(token_id: int) -> str:
    """The word of a token: two syllables, a different one for every id."""
    first, second = divmod(token_id % VOCABULARY_TOKENS, _SYLLABLES)
    return "".join(
        _CONSONANTS[s // len(_VOWELS)] + _VOWELS[s % len(_VOWELS)] for s in (first, second)
    )


class TokenSequence:
    """The answer to a prompt, as token ids: the same one for the same prompt and seed."""

    __slots__ = ("_first", "_stride")

    def __init__(self, prompt: bytes, seed: int) -> None:
        mixed = zlib.crc32(prompt, seed & 0xFFFFFFFF)
        self._first = mixed % VOCABULARY_TOKENS
        self._stride = 2 * (mixed >> 12) % VOCABULARY_TOKENS | 1  # odd: visits every id

    def __getitem__(self, position: int) -> int:
        return (self._first + position * self._stride) % VOCABULARY_TOKENS


class MockText:
    """Turns tokens into text, and text into counts."""

    def __init__(self, client_tokens_per_token: float) -> None:
        self._ratio = client_tokens_per_token
        self._pieces: dict[tuple[int, int], bytes] = {}

    def piece(self, token_id: int, position: int) -> bytes:
        """Text of a token at `position` ≥ 0 of its answer; letters and spaces only."""
        words = self.words(position + 1) - self.words(position)
        key = (token_id, words)
        piece = self._pieces.get(key)
        if piece is None:
            text = "".join(f" {word(token_id + step)}" for step in range(words))
            self._pieces[key] = piece = (text or word(token_id)[:2]).encode()
        return piece.lstrip() if position == 0 else piece

    def words(self, tokens: int) -> int:
        """What a client counts in the first `tokens` tokens of an answer."""
        return math.ceil(tokens * self._ratio - 1e-9)

    def prompt_tokens(self, text: str) -> int:
        """What the server counts in a prompt of a client's words."""
        return math.ceil(len(text.split()) / self._ratio - 1e-9)
