"""The blocks of one KV group: who counts on them, which may be reused, which hold what.

Every block but block 0 is in exactly one of three states:

    held     references ≥ 1      a running sequence's table points at it; it may also have a key
    cached   references 0, key   kept for the next equal prefix, reused last: least recent first
    blank    references 0        nothing worth keeping, reused first

Every operation takes constant time. Which blocks a sequence needs is decided in `kv_group`.
"""

from array import array
from collections import OrderedDict

import numpy as np
from numpy.typing import NDArray

__all__ = ["BlockPool"]


class BlockPool:
    """Reference-counted block ids [1, blocks), and the index from key to block."""

    __slots__ = ("_blank", "_cached", "_counts", "_index", "_keys", "_references", "total")

    def __init__(self, blocks: int) -> None:
        self.total = blocks - 1
        """Blocks that can be handed out."""
        # One memory, seen twice: a plain array is the faster for single blocks, numpy for many.
        self._references = array("i", bytes(4 * blocks))
        self._counts: NDArray[np.int32] = np.frombuffer(self._references, dtype=np.int32)
        self._keys: list[bytes | None] = [None] * blocks
        self._index: dict[bytes, int] = {}
        self._blank = list(range(blocks - 1, 0, -1))
        self._cached: OrderedDict[int, None] = OrderedDict()

    @property
    def free(self) -> int:
        """Blocks that `take` can hand out now, cached ones included."""
        return len(self._blank) + len(self._cached)

    @property
    def used(self) -> int:
        """Blocks held by someone."""
        return self.total - self.free

    @property
    def cached(self) -> int:
        """Blocks nobody holds whose contents can still be found."""
        return len(self._cached)

    def take(self) -> int:
        """A block of unknown contents with one reference. Valid only while `free` is not 0.

        Forgets the least recently released cached block when no blank one is left.
        """
        if self._blank:
            block = self._blank.pop()
        else:
            block, _ = self._cached.popitem(last=False)
            key = self._keys[block]
            assert key is not None
            del self._index[key]
            self._keys[block] = None
        self._references[block] = 1
        return block

    def share(self, block: int) -> None:
        """Add a reference to a block found by `lookup`."""
        if self._references[block] == 0:
            del self._cached[block]
        self._references[block] += 1

    def release(self, block: int) -> None:
        """Drop a reference; the last one leaves the block cached or blank."""
        references = self._references[block] - 1
        assert references >= 0, f"block {block} released once too often"
        self._references[block] = references
        if references == 0:
            if self._keys[block] is None:
                self._blank.append(block)
            else:
                self._cached[block] = None

    def publish(self, block: int, key: bytes) -> bool:
        """Make a held, fully computed block findable. False when another one already is."""
        assert self._references[block] > 0 and self._keys[block] is None
        if key in self._index:
            return False
        self._index[key] = block
        self._keys[block] = key
        return True

    def lookup(self, key: bytes) -> int | None:
        """The block that holds what `key` stands for; None when there is none. Changes nothing."""
        return self._index.get(key)

    def references(self, block: int) -> int:
        return self._references[block]

    def count_exclusive(self, blocks: NDArray[np.int32]) -> int:
        """How many of `blocks` have exactly one holder; the null block has none."""
        return int(np.count_nonzero(self._counts[blocks] == 1))

    def is_published(self, block: int) -> bool:
        return self._keys[block] is not None

    def check_integrity(self, expected_references: dict[int, int]) -> None:
        """Assert that states are exclusive, complete and agree with what sequences hold."""
        blank, cached = set(self._blank), set(self._cached)
        held = {block for block, count in enumerate(self._references) if count}
        assert len(blank) == len(self._blank), "a block is blank twice"
        assert not (blank & cached or blank & held or cached & held), "a block in two states"
        assert blank | cached | held == set(range(1, self.total + 1)), "a block is lost"
        assert {block: self._references[block] for block in held} == expected_references
        assert all(self._keys[block] is None for block in blank), "a blank block has a key"
        published = {key: block for block, key in enumerate(self._keys) if key is not None}
        assert published == self._index, "keys and index disagree"
        assert cached <= set(published.values()), "a cached block cannot be found"
