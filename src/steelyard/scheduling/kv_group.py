"""One KV group: which blocks a sequence needs there, when they go, where it can resume.

The kinds differ in three answers only, so each is a small class:

                 needs to compute [start, end)            resumes at boundary b when cached are
    every token  columns of [0, end)                      all blocks of [0, b)
    window w     columns of [start - w + 1, end)          the blocks of [b - w + 1, b)
    state        columns of start - 1 and end - 1         the state at b itself

`kv_manager` asks all groups and makes their answers one. Sequence positions become columns here
and nowhere above.
"""

import math
from collections.abc import Iterable
from dataclasses import dataclass

from steelyard.scheduling.block_pool import BlockPool
from steelyard.scheduling.block_tables import BlockTable
from steelyard.scheduling.config import GroupKind, KVGroup

__all__ = ["GroupCache", "KVGeometry", "create_group_cache"]


def create_group_cache(group: KVGroup, geometry: "KVGeometry") -> "GroupCache":
    """An empty cache of the class that `group.kind` asks for."""
    return _CACHES[group.kind](group, geometry)


@dataclass(frozen=True, slots=True)
class KVGeometry:
    """What all groups of an engine have in common."""

    rows: int
    """Sequences that may run at once."""
    context_tokens: int
    step_tokens: int
    """Tokens of one sequence computed in one step at most."""
    granule_tokens: int
    """Tokens per prefix key; divides every group's block."""
    resume_tokens: int
    """Sequences resume at multiples of this only; every group's block divides it."""

    @classmethod
    def of(
        cls, groups: Iterable[KVGroup], *, rows: int, context_tokens: int, step_tokens: int
    ) -> "KVGeometry":
        """The geometry of `groups`, whose blocks must be multiples of the smallest one."""
        sizes = [group.block_tokens for group in groups]
        granule = min(sizes)
        assert all(size % granule == 0 for size in sizes), sizes
        return cls(rows, context_tokens, step_tokens, granule, math.lcm(*sizes))


class GroupCache:
    """Pool and table of a group that keeps every token (FULL, COMPRESSED)."""

    __slots__ = ("block_tokens", "geometry", "group", "keys_per_block", "pool", "table")

    is_sliding = False
    """Whether blocks are given back while a sequence runs."""

    def __init__(self, group: KVGroup, geometry: KVGeometry) -> None:
        self.group = group
        self.geometry = geometry
        self.block_tokens = group.block_tokens
        self.keys_per_block = group.block_tokens // geometry.granule_tokens
        self.pool = BlockPool(group.blocks)
        self.table = BlockTable(
            geometry.rows, math.ceil(geometry.context_tokens / group.block_tokens)
        )

    # What a sequence needs.

    def first_needed(self, computed: int) -> int:
        """Column of the oldest block that tokens from `computed` on still attend to."""
        return 0

    def missing(self, row: int, end: int) -> int:
        """Blocks a row lacks before its tokens up to `end` can be computed."""
        return -(-end // self.block_tokens) - self.table.filled[row]

    def reachable(self, row: int) -> int:
        """The furthest token end that the row's and all free blocks together have room for."""
        return (self.table.filled[row] + self.pool.free) * self.block_tokens

    def room_tokens(self, row: int) -> int:
        """Tokens of the sequence that the row's blocks have room for."""
        return self.table.filled[row] * self.block_tokens

    def peak_blocks(self, tokens: int, *, step_tokens: int) -> int:
        """Most blocks held at once to compute `tokens`, at most `step_tokens` of them a step."""
        return -(-tokens // self.block_tokens)

    def owed_blocks(self, tokens: int, held: int) -> int:
        """Blocks a sequence with `held` of them may still take to compute its first `tokens`."""
        return max(0, self.peak_blocks(tokens, step_tokens=self.geometry.step_tokens) - held)

    def held_blocks(self, row: int) -> int:
        """Columns a row has in use."""
        return self.table.filled[row] - self.table.first[row]

    # Taking, returning and publishing blocks.

    def grow(self, row: int, end: int) -> None:
        """Take the `missing` blocks; valid only while the pool has them."""
        count = self.missing(row, end)
        if count > 0:
            take = self.pool.take
            self.table.place(row, self.table.filled[row], [take() for _ in range(count)])

    def give_back(self, row: int, computed: int) -> None:
        """Release the blocks that tokens from `computed` on do not attend to any more."""
        column = self.first_needed(computed)
        if column > self.table.first[row]:
            for block in self.table.drop_before(row, column):
                self.pool.release(block)

    def release(self, row: int) -> None:
        """Release all blocks of a row, newest first: prefixes outlive tails in the cache."""
        for block in reversed(self.table.clear(row)):
            self.pool.release(block)

    def publish(self, row: int, *, before: int, computed: int, keys: list[bytes]) -> None:
        """Give keys to the blocks that became full while [before, computed) was computed."""
        for column in range(before // self.block_tokens, computed // self.block_tokens):
            self._publish_column(row, column, keys)

    def _publish_column(self, row: int, column: int, keys: list[bytes]) -> None:
        block = self.table.matrix.item(row, column)
        self.pool.publish(block, keys[(column + 1) * self.keys_per_block - 1])

    # Finding what is cached.

    def resumable(self, keys: list[bytes], tokens: int) -> int:
        """The largest boundary up to `tokens` at which a sequence with these keys can resume.

        `tokens` and the answer are multiples of `resume_tokens`; 0 is always possible.
        """
        lookup, step = self.pool.lookup, self.keys_per_block
        for column in range(tokens // self.block_tokens):
            if lookup(keys[(column + 1) * step - 1]) is None:
                return self._boundary_up_to(column)
        return tokens

    def _boundary_up_to(self, column: int) -> int:
        tokens, resume = column * self.block_tokens, self.geometry.resume_tokens
        return tokens - tokens % resume

    def hit_blocks(self, keys: list[bytes], tokens: int) -> list[int]:
        """The cached blocks needed to resume at `tokens`, a boundary found by `resumable`."""
        step = self.keys_per_block
        columns = range(self.first_needed(tokens), tokens // self.block_tokens)
        found = [self.pool.lookup(keys[(column + 1) * step - 1]) for column in columns]
        blocks = [block for block in found if block is not None]
        assert len(blocks) == len(found), "a block of a hit is not cached"
        return blocks

    def resume(self, row: int, tokens: int, blocks: list[int]) -> None:
        """Let an empty row start at `tokens` with the `hit_blocks` found for it."""
        for block in blocks:
            self.pool.share(block)
        self.table.place(row, self.first_needed(tokens), blocks)

    def freed_by_preempting(self, row: int) -> int:
        """Blocks that would become free: those only this row holds."""
        return self.pool.count_exclusive(self.table.columns(row))

    def kept_after_preempting(self, row: int, computed: int, reused: int) -> int:
        """Tokens that stay cached when, after a release, `reused` freed blocks are taken."""
        pool, table = self.pool, self.table
        kept = computed // self.block_tokens
        for column in range(table.filled[row] - 1, table.first[row] - 1, -1):
            if not reused:
                break
            block = table.matrix.item(row, column)
            if pool.references(block) == 1:
                reused -= 1
                if pool.is_published(block):
                    kept = min(kept, column)
        return kept * self.block_tokens

    def check_integrity(self, rows_in_use: set[int]) -> None:
        """Assert that tables and pool agree about every block."""
        expected: dict[int, int] = {}
        for row in rows_in_use:
            for block in self.table.held(row):
                expected[block] = expected.get(block, 0) + 1
        self.pool.check_integrity(expected)
        self.table.check_integrity(rows_in_use)


class WindowCache(GroupCache):
    """Pool and table of a group that attends to its newest tokens only (WINDOW)."""

    __slots__ = ("lookback_tokens",)

    is_sliding = True

    def __init__(self, group: KVGroup, geometry: KVGeometry) -> None:
        super().__init__(group, geometry)
        self.lookback_tokens = (group.window_tokens or 1) - 1
        """Earlier tokens that a token attends to, itself not counted."""

    def first_needed(self, computed: int) -> int:
        return max(0, computed - self.lookback_tokens) // self.block_tokens

    def peak_blocks(self, tokens: int, *, step_tokens: int) -> int:
        # n + 1 consecutive tokens touch at most ceil(n / block) + 1 blocks, however aligned.
        span = self.lookback_tokens + step_tokens - 1
        return min(
            super().peak_blocks(tokens, step_tokens=step_tokens), -(-span // self.block_tokens) + 1
        )

    def resumable(self, keys: list[bytes], tokens: int) -> int:
        # From the newest block down: one that is missing rules out every boundary whose window
        # contains it, so each block is looked up at most once.
        while tokens > 0:
            missing = self._newest_missing(keys, tokens)
            if missing is None:
                break
            tokens = self._boundary_up_to(missing)
        return tokens

    def _newest_missing(self, keys: list[bytes], tokens: int) -> int | None:
        lookup, step = self.pool.lookup, self.keys_per_block
        for column in range(tokens // self.block_tokens - 1, self.first_needed(tokens) - 1, -1):
            if lookup(keys[(column + 1) * step - 1]) is None:
                return column
        return None

    def kept_after_preempting(self, row: int, computed: int, reused: int) -> int:
        # Older windows may be cached as well, but nothing promises it.
        kept = super().kept_after_preempting(row, computed, reused)
        return kept if computed - kept < self.block_tokens else 0


class StateCache(WindowCache):
    """Pool and table of a group that carries one state along (STATE).

    Like a window that looks back to the previous token, except that a slice leaves one block
    however long it is, and that a block holds what its key says only if a slice ended there.
    """

    __slots__ = ()

    def __init__(self, group: KVGroup, geometry: KVGeometry) -> None:
        super().__init__(group, geometry)
        self.lookback_tokens = 1

    def missing(self, row: int, end: int) -> int:
        return min(1, super().missing(row, end))

    def reachable(self, row: int) -> int:
        if self.pool.free:
            return self.geometry.context_tokens
        return self.table.filled[row] * self.block_tokens

    def peak_blocks(self, tokens: int, *, step_tokens: int) -> int:
        return min(2, -(-tokens // self.block_tokens))

    def grow(self, row: int, end: int) -> None:
        if self.missing(row, end) > 0:
            self.table.place(row, (end - 1) // self.block_tokens, [self.pool.take()])

    def publish(self, row: int, *, before: int, computed: int, keys: list[bytes]) -> None:
        if computed % self.block_tokens == 0:
            self._publish_column(row, computed // self.block_tokens - 1, keys)

    def kept_after_preempting(self, row: int, computed: int, reused: int) -> int:
        if computed % self.block_tokens or not computed:
            return 0
        newest = self.table.matrix.item(row, self.table.filled[row] - 1)
        lost = reused > 0 and self.pool.references(newest) == 1
        return computed if self.pool.is_published(newest) and not lost else 0


_CACHES: dict[GroupKind, type[GroupCache]] = {
    GroupKind.FULL: GroupCache,
    GroupKind.COMPRESSED: GroupCache,
    GroupKind.WINDOW: WindowCache,
    GroupKind.STATE: StateCache,
}
