"""What makes two prefixes equal: chained SHA-256 keys, one per full block of tokens.

    root  = H(format version, salt)
    key 0 = H(root,  tokens [0, g))
    key i = H(key i-1, tokens [i·g, (i+1)·g))          g: granule, the smallest block of any group

A key therefore stands for its whole prefix and for the salt. SHA-256 and not a faster hash because
a collision would serve one tenant the KV of another, and prompts are chosen by strangers. Which
block holds a key's KV is the business of `block_pool`.
"""

import struct
from hashlib import sha256

__all__ = ["PrefixKeys"]

_FORMAT = b"steelyard-prefix-1\0"
"""Changes whenever equal keys would no longer mean equal KV."""


class PrefixKeys:
    """Computes keys of one granule; remembers nothing between calls."""

    __slots__ = ("_pack", "granule_tokens")

    def __init__(self, granule_tokens: int) -> None:
        self.granule_tokens = granule_tokens
        self._pack = struct.Struct(f"<{granule_tokens}i").pack

    @staticmethod
    def root(salt: str) -> bytes:
        """The key of the empty prefix."""
        return sha256(_FORMAT + salt.encode()).digest()

    def extend(self, keys: list[bytes], token_ids: list[int], *, blocks: int, salt: str) -> None:
        """Append to `keys` until there are `blocks` of them; those already there are trusted.

        Token ids are hashed as little-endian int32 and must fit into it.
        """
        granule, pack = self.granule_tokens, self._pack
        key = keys[-1] if keys else self.root(salt)
        for start in range(len(keys) * granule, blocks * granule, granule):
            key = sha256(key + pack(*token_ids[start : start + granule])).digest()
            keys.append(key)
