"""KV memory of all running sequences, over all groups: what is cached, who gets which blocks.

One pool and one table per group; a decision here is one that all groups agree on. A prefix hit
ends at the longest boundary at which every group can resume, a slice gets its blocks in every
group or in none. A block gets its key when its KV has been computed, keeps it after its release
until the block is reused, and can be shared as long as it has one.

Sequences are changed in what concerns their memory only (`row`, `room_tokens`, keys and claims);
whether to admit, preempt or finish one is decided in `scheduler`. The runner reads `tables`.
"""

from collections import abc
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from steelyard.scheduling.config import GroupKind, KVGroup
from steelyard.scheduling.kv_group import KVGeometry, create_group_cache
from steelyard.scheduling.prefix_keys import PrefixKeys
from steelyard.scheduling.prefix_pending import PendingPrefixes
from steelyard.scheduling.sequence import Sequence

__all__ = ["KVManager", "PrefixHit"]

_NEVER = 1 << 62


@dataclass(frozen=True, slots=True)
class PrefixHit:
    """A cached prefix. Valid only until blocks are next taken or released."""

    tokens: int
    blocks: tuple[list[int], ...]
    """By group: the blocks needed to resume after `tokens`."""


class KVManager:
    """Blocks, keys and claims of all groups."""

    def __init__(
        self,
        groups: abc.Sequence[KVGroup],
        *,
        max_running: int,
        context_tokens: int,
        max_step_tokens: int,
        prefix_cache: bool = True,
    ) -> None:
        geometry = KVGeometry.of(
            groups, rows=max_running, context_tokens=context_tokens, step_tokens=max_step_tokens
        )
        self._geometry = geometry
        self._caches = [create_group_cache(group, geometry) for group in groups]
        self._sliding = [cache for cache in self._caches if cache.is_sliding]
        self._whole = [cache for cache in self._caches if not cache.is_sliding]
        self._state_tokens = max(
            (group.block_tokens for group in groups if group.kind is GroupKind.STATE), default=0
        )
        self._prefix_cache = prefix_cache
        self._keys = PrefixKeys(geometry.granule_tokens)
        self._pending = PendingPrefixes()
        self._rows = list(range(max_running - 1, -1, -1))
        self.tables: tuple[NDArray[np.int32], ...] = tuple(
            cache.table.matrix for cache in self._caches
        )
        """By group: blocks of the sequence in each row, see `block_tables`. Never reallocated."""

    @property
    def blocks_used(self) -> int:
        """Blocks held by running sequences, over all groups."""
        return sum(cache.pool.used for cache in self._caches)

    @property
    def blocks_total(self) -> int:
        return sum(cache.pool.total for cache in self._caches)

    @property
    def free_rows(self) -> int:
        return len(self._rows)

    def group_too_small_for(self, tokens: int) -> KVGroup | None:
        """The group that could not hold a sequence of `tokens` even alone; None when all could."""
        for cache in self._caches:
            if cache.peak_blocks(tokens, step_tokens=1) > cache.pool.total:
                return cache.group
        return None

    # Admission.

    def find_prefix(self, sequence: Sequence) -> PrefixHit:
        """The longest cached prefix of a waiting sequence, its newest token always left out.

        That one must be computed, or there would be no logits to draw from. Touches nothing but
        the sequence's keys.
        """
        tokens = 0
        if self._prefix_cache:
            tokens = self._aligned(len(sequence.token_ids) - 1)
            self._extend_keys(sequence, len(sequence.token_ids))
        keys = sequence.prefix_keys
        for cache in self._whole:
            tokens = cache.resumable(keys, tokens)
        agreed = -1
        while tokens != agreed:
            agreed = tokens
            for cache in self._sliding:
                tokens = cache.resumable(keys, tokens)
        return PrefixHit(tokens, tuple(cache.hit_blocks(keys, tokens) for cache in self._caches))

    def awaited_key(self, sequence: Sequence, hit: PrefixHit) -> bytes | None:
        """The key of the longest prefix, beyond `hit`, that running sequences are about to compute.

        None when waiting is pointless: nobody goes on from `hit`, or not as far as to be of use
        to the sequence.
        """
        awaited: bytes | None = None
        if self._prefix_cache:
            for key in self._boundary_keys(sequence, hit.tokens, len(sequence.token_ids) - 1):
                if key not in self._pending:
                    break
                awaited = key
        return awaited

    def is_pending(self, key: bytes) -> bool:
        """Whether a running sequence is still about to compute the prefix `key` stands for."""
        return key in self._pending

    def used_share_after(
        self, sequence: Sequence, hit: PrefixHit, unfinished: abc.Iterable[Sequence]
    ) -> float:
        """Used share of the fullest group once `sequence` and the `unfinished` are prefilled."""
        share = 0.0
        for cache, blocks in zip(self._caches, hit.blocks, strict=True):
            pool = cache.pool
            revived = [pool.references(block) for block in blocks].count(0)
            owed = cache.owed_blocks(len(sequence.token_ids), len(blocks))
            for other in unfinished:
                owed += cache.owed_blocks(other.prefill_end, cache.held_blocks(other.row))
            share = max(share, (pool.used + revived + owed) / pool.total)
        return share

    def admit(self, sequence: Sequence, hit: PrefixHit) -> None:
        """Give a waiting sequence a row that starts with `hit`, and claim what follows it."""
        sequence.row = row = self._rows.pop()
        for cache, blocks in zip(self._caches, hit.blocks, strict=True):
            cache.resume(row, hit.tokens, blocks)
        sequence.computed_tokens = sequence.room_tokens = hit.tokens
        sequence.commit_at_tokens = _NEVER
        if self._prefix_cache:
            sequence.commit_at_tokens = hit.tokens + self._geometry.granule_tokens
            sequence.claimed_tokens = self._aligned(len(sequence.token_ids))
            self._pending.claim(
                sequence, self._boundary_keys(sequence, hit.tokens, sequence.claimed_tokens)
            )

    # While running.

    def fit(self, sequence: Sequence, count: int) -> int:
        """How many of the next `count` tokens `extend` could make room for now.

        Like `extend`, first gives back the blocks that nothing attends to any more.
        """
        self._give_back(sequence)
        reach = min(cache.reachable(sequence.row) for cache in self._caches)
        return max(0, min(count, reach - sequence.computed_tokens))

    def slice_end(self, sequence: Sequence, end: int) -> int:
        """Where a prefill slice that could reach `end` should stop.

        A state is worth keeping only at a block's end, so a slice stops at the last one it passes.
        """
        if self._state_tokens and self._prefix_cache:
            boundary = end // self._state_tokens * self._state_tokens
            if boundary > sequence.computed_tokens:
                return boundary
        return end

    def extend(self, sequence: Sequence, end: int) -> bool:
        """Make room for the KV of all tokens up to `end`, in every group or, if False, in none."""
        self._give_back(sequence)
        row, caches = sequence.row, self._caches
        for cache in caches:
            if cache.missing(row, end) > cache.pool.free:
                return False
        for cache in caches:
            cache.grow(row, end)
        sequence.room_tokens = min([cache.room_tokens(row) for cache in caches])
        return True

    def commit(self, sequence: Sequence) -> None:
        """Publish the blocks that are full now that `computed_tokens` has passed their ends."""
        computed, granule = sequence.computed_tokens, self._geometry.granule_tokens
        before = sequence.commit_at_tokens - granule
        self._extend_keys(sequence, computed)
        keys = sequence.prefix_keys
        for cache in self._caches:
            cache.publish(sequence.row, before=before, computed=computed, keys=keys)
        if before < sequence.claimed_tokens:
            self._pending.settle(self._boundary_keys(sequence, before, computed))
        sequence.commit_at_tokens = computed - computed % granule + granule

    def release(self, sequence: Sequence) -> None:
        """Take a running sequence out of memory; published blocks stay cached until reused."""
        if self._prefix_cache:
            before = sequence.commit_at_tokens - self._geometry.granule_tokens
            keys = self._boundary_keys(sequence, before, sequence.claimed_tokens)
            self._pending.withdraw(sequence, keys)
        for cache in self._caches:
            cache.release(sequence.row)
        self._rows.append(sequence.row)
        sequence.row = -1
        sequence.computed_tokens = sequence.room_tokens = sequence.claimed_tokens = 0

    # When memory is short.

    def shortage(self, sequence: Sequence, end: int) -> list[int]:
        """By group: blocks that `extend` to `end` lacks."""
        return [
            max(0, cache.missing(sequence.row, end) - cache.pool.free) for cache in self._caches
        ]

    def preemption_yield(self, sequence: Sequence, shortage: list[int]) -> tuple[int, int]:
        """What preempting a running sequence brings and costs, as (freed blocks, lost tokens).

        Freed blocks count in groups with a shortage. Lost are the computed tokens that do not stay
        cached when as many freed blocks as lack are reused at once.
        """
        computed = kept = sequence.computed_tokens
        freed = 0
        for cache, lacking in zip(self._caches, shortage, strict=True):
            if lacking:
                freed += cache.freed_by_preempting(sequence.row)
            kept = min(kept, cache.kept_after_preempting(sequence.row, computed, lacking))
        return freed, computed - (self._aligned(kept) if self._prefix_cache else 0)

    def check_integrity(self, running: abc.Iterable[Sequence]) -> None:
        """Assert that rows, tables, pools, keys and claims agree with the running sequences."""
        rows = [sequence.row for sequence in running]
        assert sorted(rows + self._rows) == list(range(self._geometry.rows)), "rows are lost"
        for cache in self._caches:
            cache.check_integrity(set(rows))
        self._pending.check_integrity()
        for sequence in running:
            assert sequence.computed_tokens <= sequence.room_tokens
            assert sequence.room_tokens == min(
                cache.room_tokens(sequence.row) for cache in self._caches
            )

    def _give_back(self, sequence: Sequence) -> None:
        for cache in self._sliding:
            cache.give_back(sequence.row, sequence.computed_tokens)

    def _extend_keys(self, sequence: Sequence, tokens: int) -> None:
        blocks = tokens // self._geometry.granule_tokens
        if blocks > len(sequence.prefix_keys):
            salt = sequence.request.cache_salt
            self._keys.extend(sequence.prefix_keys, sequence.token_ids, blocks=blocks, salt=salt)

    def _boundary_keys(self, sequence: Sequence, after: int, upto: int) -> list[bytes]:
        """Keys of the boundaries in (after, upto] at which a sequence may resume."""
        resume, granule = self._geometry.resume_tokens, self._geometry.granule_tokens
        boundaries = range(self._aligned(after) + resume, upto + 1, resume)
        return [sequence.prefix_keys[boundary // granule - 1] for boundary in boundaries]

    def _aligned(self, tokens: int) -> int:
        return tokens - tokens % self._geometry.resume_tokens
