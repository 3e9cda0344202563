"""Independent, repeatable random streams: one per purpose and index, never one shared by two users.

Load generators have repeated every gap once per worker because each worker seeded the same
generator. Here a stream is named by what it is for (`"gaps"`, `"words", session, turn`), so its
numbers depend on the seed and the name alone: not on the number of workers, nor on who asks first.
"""

import zlib

import numpy as np

__all__ = ["Streams"]


class Streams:
    """All random streams of one seed.

    The name takes the place of the child counter of `SeedSequence.spawn` (O'Neill, "Developing a
    seed_seq alternative", 2015): children with different keys are statistically independent.
    """

    def __init__(self, seed: int) -> None:
        """`seed`: any non-negative integer."""
        self.seed = seed

    def generator(self, purpose: str, *index: int) -> np.random.Generator:
        """A new generator at the beginning of the stream; equal names give equal numbers."""
        key = (zlib.crc32(purpose.encode()), *index)
        return np.random.Generator(
            np.random.PCG64(np.random.SeedSequence(self.seed, spawn_key=key))
        )
