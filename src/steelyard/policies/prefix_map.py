"""Which replica has which prompts in its cache, as far as is known from what it was sent.

A prompt is cut into blocks, and each block's key is chained to the key before it, so a key stands
for a whole prefix. For every key the map keeps one integer with a bit per replica; walking down a
prompt and and-ing the integers tells for all replicas at once how far each of them knows it, at a
cost that depends on the prompt and not on the fleet.

    key of block   0      1      2      3
    replicas      0111   0111   0010   -         replica 1 knows 3 blocks, replicas 0 and 2 know 2

Per replica the keys are kept in order of use, the ends of prompts before their beginnings, and as
many as its cache can hold: the order in which the replica itself forgets. Guesses are harmless: a
wrong one costs a prefill.
"""

from collections import OrderedDict
from collections.abc import Iterator, Sequence

__all__ = ["PrefixMap"]


class PrefixMap:
    """Prefixes of all replicas. Replicas are small integers, reused after `remove`."""

    def __init__(self, *, block_tokens: int, max_blocks: int, seed: int = 0) -> None:
        """`max_blocks` bounds the map over all replicas together. `seed` makes keys differ between
        services, so that nobody can prepare prompts whose keys collide."""
        self._block_tokens = block_tokens
        self._max_blocks = max_blocks
        self._seed = seed
        self._holders: dict[int, int] = {}
        """Key → bit mask of the replicas that have it."""
        self._known: dict[int, OrderedDict[int, None]] = {}
        """Replica → its keys, the next one to be forgotten first."""
        self._room: dict[int, int] = {}
        self._entries = 0

    def __len__(self) -> int:
        """Entries, over all replicas."""
        return self._entries

    def add(self, replica: int, *, capacity_tokens: int = 0) -> None:
        """Begin to track a replica whose cache holds so many tokens; 0: unknown."""
        self._known.setdefault(replica, OrderedDict())
        self._room[replica] = capacity_tokens // self._block_tokens or self._max_blocks
        self._trim(replica, self._room[replica])

    def forget(self, replica: int) -> None:
        """Its cache is empty: the process was replaced."""
        known = self._known.get(replica, OrderedDict())
        for key in known:
            self._drop(key, replica)
        known.clear()

    def remove(self, replica: int) -> None:
        """The replica is gone for good."""
        self.forget(replica)
        self._known.pop(replica, None)
        self._room.pop(replica, None)

    def keys(self, token_ids: tuple[int, ...], salt: str = "") -> list[int]:
        """Keys of all full blocks of a prompt. Prompts of different salts share none."""
        size = self._block_tokens
        key = hash((self._seed, salt))
        keys = []
        # One round per block: a prompt of 100,000 tokens has 1,600.
        for end in range(size, len(token_ids) + 1, size):
            key = hash((key, token_ids[end - size : end]))
            keys.append(key)
        return keys

    def overlaps(self, keys: Sequence[int], *, limit: int) -> dict[int, int]:
        """Known tokens by replica, for the `limit` replicas that know most; the most first.

        Replicas that know nothing are left out.
        """
        steps: list[tuple[int, int]] = []
        mask = -1
        for depth, key in enumerate(keys):
            shared = self._holders.get(key, 0) & mask
            if shared != mask and depth:
                steps.append((depth, mask & ~shared))
            mask = shared
            if not mask:
                break
        else:
            if keys:
                steps.append((len(keys), mask))
        found: dict[int, int] = {}
        for depth, dropped in reversed(steps):
            for replica in _bits(dropped):
                found[replica] = depth * self._block_tokens
                if len(found) >= limit:
                    return found
        return found

    def sent(self, replica: int, keys: Sequence[int]) -> None:
        """The replica was given a prompt with these keys, and will have it in its cache."""
        known = self._known.get(replica)
        if known is None:
            return
        bit = 1 << replica
        holders = self._holders
        # Backwards, so that the beginning of a prompt is the last of it to be forgotten.
        for key in reversed(keys):
            if key in known:
                known.move_to_end(key)
            else:
                known[key] = None
                self._entries += 1
                holders[key] = holders.get(key, 0) | bit
        self._trim(replica, self._room[replica])
        if self._entries > self._max_blocks:
            self._keep_bound(replica)

    def check_integrity(self) -> None:
        """Assert that both directions agree and all bounds hold."""
        for replica, known in self._known.items():
            assert len(known) <= self._room[replica], f"replica {replica} exceeds its room"
            assert all(self._holders[key] >> replica & 1 for key in known)
        assert self._entries <= self._max_blocks
        assert self._entries == sum(len(known) for known in self._known.values())
        bits = sum(mask.bit_count() for mask in self._holders.values())
        assert bits == len(self), "a holder is not known"
        assert all(self._holders.values()), "a key without a holder"

    def _keep_bound(self, replica: int) -> None:
        """Take what is too much from the one that grew; from everybody if that is not enough."""
        fair = self._max_blocks // len(self._known)
        self._trim(replica, fair)
        if self._entries > self._max_blocks:
            for other in self._known:
                self._trim(other, fair)

    def _trim(self, replica: int, limit: int) -> None:
        known = self._known[replica]
        while len(known) > limit:
            key, _ = known.popitem(last=False)
            self._drop(key, replica)

    def _drop(self, key: int, replica: int) -> None:
        self._entries -= 1
        mask = self._holders[key] & ~(1 << replica)
        if mask:
            self._holders[key] = mask
        else:
            del self._holders[key]


def _bits(mask: int) -> Iterator[int]:
    """Positions of the set bits, lowest first."""
    while mask:
        low = mask & -mask
        yield low.bit_length() - 1
        mask ^= low
