"""Prefixes that a running sequence is about to compute, so that nobody computes them twice.

Four requests with one new system prompt arrive together: the first claims the prompt's keys, the
others find them claimed and wait for the cache entry instead. A claim ends when its key is in the
cache or its owner stops running, whichever comes first; so a waiter never waits for a sequence
that does not run, and there is nothing to dead-lock on. The waiting is done in `admission`.
"""

from collections.abc import Iterable

from steelyard.scheduling.sequence import Sequence

__all__ = ["PendingPrefixes"]


class PendingPrefixes:
    """Claimed prefix keys and who claimed them first."""

    __slots__ = ("_owners",)

    def __init__(self) -> None:
        self._owners: dict[bytes, Sequence] = {}

    def __contains__(self, key: bytes) -> bool:
        return key in self._owners

    def __len__(self) -> int:
        return len(self._owners)

    def claim(self, sequence: Sequence, keys: Iterable[bytes]) -> None:
        """Announce that `sequence` will compute `keys`; earlier claims stand."""
        for key in keys:
            self._owners.setdefault(key, sequence)

    def settle(self, keys: Iterable[bytes]) -> None:
        """`keys` are computed, by whomever."""
        for key in keys:
            self._owners.pop(key, None)

    def withdraw(self, sequence: Sequence, keys: Iterable[bytes]) -> None:
        """`sequence` will not compute `keys` after all; claims of others stand."""
        for key in keys:
            if self._owners.get(key) is sequence:
                del self._owners[key]

    def check_integrity(self) -> None:
        """Assert that every claim belongs to a running sequence."""
        assert all(owner.is_running for owner in self._owners.values())
