"""A simulated engine with a prefix cache: prompts are read one after the other, answers together.

For questions of routing: what was cached, how long prompts waited, who worked how much. It never
fails; `tests.simulated_engine` does that.
"""

import asyncio
from collections import OrderedDict
from collections.abc import AsyncGenerator, Sequence

from steelyard.contract import EngineInfo, EngineStatus, GenerateRequest, TokenChunk, Usage

__all__ = ["CachingEngine"]

_CHUNK_TOKENS = 32
"""Output tokens per chunk: routing does not care, and an hour of traffic has millions."""


class CachingEngine:
    """One replica of `contract.Engine`, in virtual time."""

    def __init__(
        self,
        name: str,
        *,
        block_tokens: int,
        cache_blocks: int,
        prefill_tokens_per_s: float,
        itl_s: float,
        max_running: int = 256,
    ) -> None:
        self.name = name
        self.prompt_tokens = 0
        self.cached_tokens = 0
        self.work_s = 0.0
        """Time spent on prompts."""
        self.output_tokens = 0
        self._block_tokens = block_tokens
        self._cache_blocks = cache_blocks
        self._prefill_tokens_per_s = prefill_tokens_per_s
        self._itl_s = itl_s
        self._max_running = max_running
        self._cache: OrderedDict[int, None] = OrderedDict()
        """Chained block keys, the least recently used first."""
        self._reading = asyncio.Lock()
        self._running = 0

    @property
    def info(self) -> EngineInfo:
        return EngineInfo(
            model="sim",
            context_tokens=1_000_000,
            vocab_size=1 << 30,
            end_token_ids=(),
            epoch=self.name,
            kv_block_tokens=self._block_tokens,
            kv_blocks_total=self._cache_blocks,
            max_running=self._max_running,
        )

    async def generate(self, request: GenerateRequest) -> AsyncGenerator[TokenChunk, None]:
        self._running += 1
        try:
            async with self._reading:
                cached = self._take_in(request.prompt_ids)
                duration_s = (len(request.prompt_ids) - cached) / self._prefill_tokens_per_s
                self.work_s += duration_s
                await asyncio.sleep(duration_s)
            start, end = 0, request.sampling.max_tokens
            while start < end:
                tokens = min(_CHUNK_TOKENS if start else 1, end - start)
                await asyncio.sleep(tokens * self._itl_s if start else 0.0)
                is_last = start + tokens == end
                self.output_tokens += tokens
                usage = Usage(len(request.prompt_ids), start + tokens, cached)
                yield TokenChunk(
                    request.request_id,
                    start,
                    (0,) * tokens,
                    finish_reason="length" if is_last else None,
                    usage=usage if is_last or not start else None,
                )
                start += tokens
        finally:
            self._running -= 1

    def _take_in(self, prompt_ids: tuple[int, ...]) -> int:
        """Look a prompt up, and keep it; how many of its tokens were there."""
        size, cache = self._block_tokens, self._cache
        keys, key = [], 0
        for end in range(size, len(prompt_ids) + 1, size):
            key = hash((key, prompt_ids[end - size : end]))
            keys.append(key)
        hits = next((i for i, key in enumerate(keys) if key not in cache), len(keys))
        for key in reversed(keys):  # a prefix is used by more prompts than what follows it
            cache[key] = None
            cache.move_to_end(key)
        while len(cache) > self._cache_blocks:
            cache.popitem(last=False)
        self.prompt_tokens += len(prompt_ids)
        self.cached_tokens += hits * size
        return hits * size

    async def abort(self, request_id: str) -> None:
        """Nobody aborts here."""

    async def status(self) -> EngineStatus:
        return EngineStatus(
            state="ready",
            epoch=self.name,
            running=self._running,
            produced_tokens_total=self.output_tokens,
            computed_tokens_total=self.prompt_tokens,
            steps_total=self.output_tokens,
        )

    async def warm(self, prompts: Sequence[Sequence[int]]) -> None:
        for prompt in prompts:
            self._take_in(tuple(prompt))

    async def drain(self) -> None:
        """Nobody drains it here."""

    async def close(self) -> None:
        """There is nothing to close."""
