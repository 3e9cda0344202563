"""`http.Dialect` for vLLM: that of OpenAI-compatible servers, and what its metrics tell.

The process's own start time is its epoch, so a server that came back is told from the one before
however short its absence was.
"""

import msgspec

from steelyard.backends.http.client import HttpClient
from steelyard.backends.http.dialect import Call, Load, Reader
from steelyard.backends.http.exposition import Exposition
from steelyard.backends.remote import RemoteConfig, RemoteDialect, TextCodec
from steelyard.contract import EngineInfo, GenerateRequest

__all__ = ["VllmDialect"]


class VllmDialect:
    """One vLLM server that we have started."""

    def __init__(self, config: RemoteConfig, text: TextCodec, *, max_running: int = 0) -> None:
        """`max_running`: as the server was told; 0 when it decides itself."""
        self._speech = RemoteDialect(config, text)
        self._max_running = max_running
        self._kv_blocks = 0

    async def open(self, client: HttpClient) -> EngineInfo:
        """See `http.Dialect`."""
        info = await self._speech.open(client)
        page = await self._read_page(client)
        cache = page.labels("vllm:cache_config_info")
        self._kv_blocks = _number(cache.get("num_gpu_blocks"))
        version = await client.get_json("/version", timeout_s=client.config.health_timeout_s)
        details = {
            "engine": "vllm",
            "version": str(version.get("version", "")) if isinstance(version, dict) else "",
            "kv_dtype": cache.get("cache_dtype", ""),
        }
        return msgspec.structs.replace(
            info,
            epoch=f"vllm-{page.total('process_start_time_seconds'):.3f}",
            kv_block_tokens=_number(cache.get("block_size")),
            kv_blocks_total=self._kv_blocks,
            max_running=self._max_running,
            details={key: value for key, value in details.items() if value},
        )

    async def check(self, client: HttpClient) -> None:
        """See `http.Dialect`."""
        await self._speech.check(client)

    async def measure(self, client: HttpClient) -> Load | None:
        """See `http.Dialect`."""
        page = await self._read_page(client)
        return Load(
            running=int(page.total("vllm:num_requests_running")),
            waiting=int(page.total("vllm:num_requests_waiting")),
            kv_blocks_used=round(page.total("vllm:kv_cache_usage_perc") * self._kv_blocks),
            kv_blocks_total=self._kv_blocks,
            prompt_tokens_total=int(page.total("vllm:prompt_tokens_total")),
            cached_tokens_total=int(page.total("vllm:prefix_cache_hits_total")),
            produced_tokens_total=int(page.total("vllm:generation_tokens_total")),
            preemptions_total=int(page.total("vllm:num_preemptions_total")),
            finished_total=int(page.total("vllm:request_success_total")),
        )

    def call(self, request: GenerateRequest) -> Call:
        """See `http.Dialect`."""
        call = self._speech.call(request)
        if request.priority:
            call.body["priority"] = request.priority
        return call

    def reader(self, request: GenerateRequest) -> Reader:
        """See `http.Dialect`."""
        return self._speech.reader(request)

    async def abort(self, client: HttpClient, request_id: str) -> None:
        """The closed connection is enough."""

    async def _read_page(self, client: HttpClient) -> Exposition:
        return Exposition(await client.get("/metrics", timeout_s=client.config.health_timeout_s))


def _number(text: str | None) -> int:
    return int(text) if text is not None and text.isdecimal() else 0
