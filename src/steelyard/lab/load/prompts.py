"""Writes the words of every prompt. Deterministic in (seed, session, turn), and in the run's nonce.

How many words make so many tokens is a property of the server (`TokenScale`), measured before a
run. `plan` says how long prompts are and what they share; `client` puts them into bodies.
"""

import functools
import secrets
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from steelyard.lab.load.plan import Plan
from steelyard.lab.load.randomness import Streams
from steelyard.lab.load.traces import MOONCAKE_BLOCK_TOKENS
from steelyard.lab.load.words import WORDS
from steelyard.lab.load.workload import CacheState

__all__ = ["PromptMaker", "TokenScale", "new_nonce", "probe_text"]

Ints = npt.NDArray[np.int64]

_NONCE_WORDS = 8
"""72 random bits: no two runs begin alike."""
_WORDS = np.array(WORDS, dtype=object)
_CACHED_BLOCKS = 4096
_CHARACTERS_PER_TOKEN = 4


@dataclass(frozen=True, slots=True)
class TokenScale:
    """How a server counts our words: tokens = overhead + per_word x words."""

    per_word: float = 1.0
    overhead: float = 0.0
    """Tokens that come on top of a first prompt: template, BOS."""

    @classmethod
    def fitted(cls, first: tuple[int, int], second: tuple[int, int]) -> "TokenScale":
        """Through two measured points of (words, tokens), the second with more words.

        The identity when they make no sense together, as when a server counts nothing.
        """
        per_word = (second[1] - first[1]) / (second[0] - first[0])
        if not 0.25 <= per_word <= 8:
            return cls()
        return cls(per_word, first[1] - per_word * first[0])

    def words(self, tokens: float, *, with_overhead: bool = False) -> int:
        """Words that make about so many tokens; never negative."""
        rest = tokens - (self.overhead if with_overhead else 0.0)
        return max(round(rest / self.per_word), 0)


class PromptMaker:
    """The user's side of every session. Keeps nothing but a bounded cache of blocks."""

    def __init__(
        self,
        plan: Plan,
        *,
        seed: int,
        cache: CacheState,
        nonce: str,
        scale: TokenScale,
    ) -> None:
        """`nonce`: from `new_nonce`, one for the whole run, used when the cache is cold."""
        self._plan = plan
        self._streams = Streams(seed)
        self._nonces = Streams(int(nonce, 16)) if cache is CacheState.COLD else None
        self._repeats_deck = cache is not CacheState.COLD
        self._scale = scale
        self._block_words = functools.lru_cache(_CACHED_BLOCKS)(self._make_block)

    def user_text(self, session: int, number: int) -> str:
        """What the user says in turn `number` of the session."""
        table = self._plan.sessions
        at = self._plan.turn_at(session, number)
        tokens = int(table.input_tokens[at])
        opening = "" if number else self._nonce(session // len(table))
        if table.texts is not None:
            text = table.texts[at][: tokens * _CHARACTERS_PER_TOKEN]
            return f"{opening}\n\n{text}" if opening else text
        if number:
            words = self._own_words(session, number, self._scale.words(tokens))
            return _joined(words)
        count = self._scale.words(tokens, with_overhead=True) - len(opening.split())
        words = self._first_words(session, at, max(count, 1))
        return f"{opening} {_joined(words)}" if opening else _joined(words)

    def _first_words(self, session: int, at: int, count: int) -> Ints:
        table = self._plan.sessions
        if table.blocks is not None:
            ids = table.blocks[at]
            size = max(self._scale.words(MOONCAKE_BLOCK_TOKENS), 1)
            needed = min(-(-count // size), len(ids))
            return np.concatenate([self._block_words(block) for block in ids[:needed]])[:count]
        if table.prefix_group is None:
            return self._own_words(session, 0, count)
        group = int(table.prefix_group[session % len(table)])
        shared = self._shared_words(group, count)
        return np.concatenate((shared, self._own_words(session, 0, count - len(shared))))

    def _shared_words(self, group: int, count: int) -> Ints:
        size = min(self._scale.words(self._plan.sessions.prefix_tokens), count - 1)
        return _draw(self._streams.generator("prefix", group), size)

    def _own_words(self, session: int, number: int, count: int) -> Ints:
        if self._repeats_deck:
            session %= len(self._plan.sessions)
        return _draw(self._streams.generator("words", session, number), max(count, 0))

    def _make_block(self, block: int) -> Ints:
        size = max(self._scale.words(MOONCAKE_BLOCK_TOKENS), 1)
        return _draw(self._streams.generator("block", block), size)

    def _nonce(self, cycle: int) -> str:
        """New words for every round through the deck: real prompts would meet themselves again."""
        if self._nonces is None:
            return ""
        return _joined(_draw(self._nonces.generator("nonce", cycle), _NONCE_WORDS))


def new_nonce() -> str:
    """Hexadecimal digits that no earlier run has had."""
    return secrets.token_hex(8)


def probe_text(words: int, nonce: str) -> str:
    """So many random words, to see how a server counts them."""
    return _joined(_draw(Streams(int(nonce, 16)).generator("probe", words), words))


def _draw(random: np.random.Generator, count: int) -> Ints:
    return random.integers(len(WORDS), size=count)


def _joined(words: Ints) -> str:
    return " ".join(_WORDS[words])
