"""Which token a fake engine produces at which place, and which prompts it remembers.

The token at index i of a completion is a hash of (prompt, seed, i): a continued stream draws the
tokens it would have drawn anyway, on any fake engine with the same vocabulary. Greedy requests
ignore the seed, as they do on a real engine.
"""

from collections import OrderedDict
from collections.abc import Sequence
from hashlib import blake2b

from steelyard.contract import GenerateRequest, TokenLogprobs

__all__ = ["PrefixMemory", "TokenDraw", "TokenSource", "fake_logprobs"]


class TokenSource:
    """Draws from a fixed set of token ids."""

    def __init__(self, token_ids: tuple[int, ...]) -> None:
        assert token_ids, "a fake engine needs at least one token to draw"
        self._token_ids = token_ids

    def stream(self, request: GenerateRequest) -> "TokenDraw":
        """The tokens of this request; pure in (prompt, seed)."""
        seed = 0 if request.sampling.is_greedy else request.sampling.seed
        digest = blake2b(f"{seed}/".encode(), digest_size=16)
        digest.update(_packed(request.prompt_ids))
        return TokenDraw(digest.digest(), self._token_ids)


class TokenDraw:
    """The endless completion of one prompt."""

    __slots__ = ("_prefix", "_token_ids")

    def __init__(self, prefix: bytes, token_ids: tuple[int, ...]) -> None:
        self._prefix = prefix
        self._token_ids = token_ids

    def at(self, index: int) -> int:
        """The token at `index` of the completion."""
        drawn = blake2b(self._prefix + index.to_bytes(8, "big"), digest_size=8).digest()
        return self._token_ids[int.from_bytes(drawn, "big") % len(self._token_ids)]


class PrefixMemory:
    """Remembers whole prompt blocks by chained hash, the least recently used forgotten first."""

    def __init__(self, block_tokens: int, blocks: int) -> None:
        self._block_tokens = block_tokens
        self._capacity = blocks
        self._known: OrderedDict[bytes, None] = OrderedDict()

    def remember(self, prompt_ids: Sequence[int], salt: str) -> int:
        """Store all whole blocks; return how many leading tokens were known before.

        As on a real engine, the last token of a prompt is never cached: its logits are needed.
        """
        key = blake2b(salt.encode(), digest_size=16).digest()
        cached_tokens = 0
        is_known = True
        for end in range(self._block_tokens, len(prompt_ids), self._block_tokens):
            block = _packed(prompt_ids[end - self._block_tokens : end])
            key = blake2b(key + block, digest_size=16).digest()
            is_known = is_known and key in self._known
            cached_tokens = end if is_known else cached_tokens
            self._known[key] = None
            self._known.move_to_end(key)
        while len(self._known) > self._capacity:
            self._known.popitem(last=False)
        return cached_tokens


def fake_logprobs(token_id: int, count: int, vocab_size: int) -> TokenLogprobs:
    """Log-probabilities that depend on the token alone: the drawn one is always the most likely."""
    top = tuple((token_id + step) % vocab_size for step in range(min(count, vocab_size)))
    # Steep enough for their shares to sum to less than one.
    values = tuple(-0.125 - 2.25 * step for step in range(len(top)))
    return TokenLogprobs(-0.125, top, values)


def _packed(ids: Sequence[int]) -> bytes:
    return b"".join(token_id.to_bytes(8, "big", signed=True) for token_id in ids)
