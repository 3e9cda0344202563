"""What servers are asked about. Fixed, so that two runs ask the same; only caches get fresh words.

Patterns come first: any language model goes on with them, and its choice is clear at every token,
so that rounding cannot change the answer. Stories are for sampling, which needs choice.
"""

import secrets

__all__ = ["COUNTING", "EMOJI", "HELLO", "SCRIPTS", "STORIES", "fresh_words", "long_text"]

COUNTING = "1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12,"
HELLO = "Say hello."
EMOJI = "🎉🚀🎉🚀🎉🚀🎉🚀🎉🚀"

SCRIPTS = (
    EMOJI,
    "Ünïcödé, naïve café, Ünïcödé, naïve café, Ünïcödé,",
    "你好，世界。你好，世界。你好，世界。",
    "Repeat exactly: 🎉🚀🎉🚀🎉🚀",
)
"""Prompts after which a model writes characters of several bytes."""

STORIES = (
    "Once upon a time",
    "The weather in the mountains was",
    "My favourite recipe begins with",
    "In the year 2150, the city",
    "The old captain looked at the sea and",
    "Dear neighbour, I am writing to you because",
    "The three most important inventions are",
    "When the train finally arrived,",
)
"""Beginnings that go on in many ways."""

_WORDS = ("apple", "river", "stone", "cloud", "paper", "music", "garden", "window", "bridge")
_SENTENCE = "The quick brown fox jumps over the lazy dog near the quiet river bank. "


def fresh_words(count: int) -> str:
    """Text that no cache can know."""
    return " ".join(secrets.choice(_WORDS) + str(secrets.randbelow(1000)) for _ in range(count))


def long_text(sentences: int) -> str:
    """Plain English of about 15 tokens a sentence."""
    return _SENTENCE * sentences
