"""Prompts as token ids: random, so that no two share a prefix unless they are meant to.

The same round, scenario and number give the same prompts to every engine; other rounds give
others, so that nothing is ever found in a prefix cache by chance.
"""

import random

from benchmarks.engines.jobs import Ask, Worker

__all__ = ["FIRST_ID", "LAST_ID", "Prompts"]

FIRST_ID = 1_000
"""Below are special tokens and single bytes."""
LAST_ID = 40_000
"""Well inside the vocabulary of SmolLM2, 49,152."""


class Prompts:
    """A stream of prompts that depends on its seed alone."""

    def __init__(self, *seed: int | str) -> None:
        self._random = random.Random("/".join(map(str, seed)))

    def ids(self, tokens: int) -> list[int]:
        """A prompt like no other."""
        return [self._random.randint(FIRST_ID, LAST_ID) for _ in range(tokens)]

    def workers(
        self, workers: int, asks: int, *, prompt_tokens: int, max_tokens: int
    ) -> list[Worker]:
        """A closed loop: every worker sends `asks` prompts."""
        return [
            Worker([Ask(self.ids(prompt_tokens), max_tokens) for _ in range(asks)])
            for _ in range(workers)
        ]

    def sharing(self, count: int, *, shared_tokens: int, own_tokens: int) -> list[list[int]]:
        """Prompts with a common beginning."""
        prefix = self.ids(shared_tokens)
        return [prefix + self.ids(own_tokens) for _ in range(count)]
