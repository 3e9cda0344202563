"""`http.Dialect` for SGLang: token ids both ways through `/generate`."""

from typing import Any

from steelyard.backends.http.client import HttpClient
from steelyard.backends.http.dialect import Call, Load, Reader
from steelyard.backends.http.exposition import Exposition
from steelyard.backends.remote import RemoteConfig
from steelyard.backends.remote.bodies import continuation_seed
from steelyard.backends.remote.probing import find_model
from steelyard.backends.sglang.readers import SglangReader
from steelyard.contract import EngineInfo, GenerateRequest, SamplingParams
from steelyard.contract.errors import EngineFailed

__all__ = ["SglangDialect"]

_GENERATE = "/generate"
_ALL = -1
"""Its word for `top_k: 0`."""


class SglangDialect:
    """One SGLang server that we have started."""

    def __init__(self, config: RemoteConfig) -> None:
        self._config = config
        self._kv_tokens = 0

    async def open(self, client: HttpClient) -> EngineInfo:
        """See `http.Dialect`."""
        await self.check(client)
        _, context_tokens = await find_model(client, self._config)
        await self._prove(client)
        page = await self._read_page(client)
        self._kv_tokens = int(page.total("sglang:max_total_num_tokens"))
        own_limit = self._config.context_tokens
        return EngineInfo(
            model=self._config.served_as,
            context_tokens=own_limit if context_tokens is None else min(own_limit, context_tokens),
            vocab_size=self._config.vocab_size,
            end_token_ids=self._config.end_token_ids,
            epoch=f"sglang-{page.total('process_start_time_seconds'):.3f}",
            kv_block_tokens=1,
            kv_blocks_total=self._kv_tokens,
            details={"engine": "sglang"},
        )

    async def check(self, client: HttpClient) -> None:
        """See `http.Dialect`."""
        await client.get("/health", timeout_s=client.config.health_timeout_s)

    async def measure(self, client: HttpClient) -> Load | None:
        """See `http.Dialect`."""
        page = await self._read_page(client)
        return Load(
            running=int(page.total("sglang:num_running_reqs")),
            waiting=int(page.total("sglang:num_queue_reqs")),
            kv_blocks_used=round(page.total("sglang:token_usage") * self._kv_tokens),
            kv_blocks_total=self._kv_tokens,
            prompt_tokens_total=int(page.total("sglang:prompt_tokens_total")),
            cached_tokens_total=int(page.total("sglang:cached_tokens_total")),
            produced_tokens_total=int(page.total("sglang:generation_tokens_total")),
            finished_total=int(page.total("sglang:num_requests_total")),
        )

    def call(self, request: GenerateRequest) -> Call:
        """See `http.Dialect`."""
        sampling = request.sampling
        body: dict[str, Any] = {
            "rid": request.request_id,
            "input_ids": [*request.prompt_ids, *request.emitted_ids],
            "sampling_params": _sampling(sampling, len(request.emitted_ids)),
            "stream": True,
        }
        if sampling.logprobs is not None:
            body |= {"return_logprob": True, "top_logprobs_num": sampling.logprobs}
        if request.cache_salt:
            body["extra_key"] = request.cache_salt
        if request.priority:
            body["priority"] = request.priority
        return Call(_GENERATE, body)

    def reader(self, request: GenerateRequest) -> Reader:
        """See `http.Dialect`."""
        return SglangReader(request.sampling.logprobs)

    async def abort(self, client: HttpClient, request_id: str) -> None:
        """It looks for closed connections only now and then."""
        timeout_s = client.config.health_timeout_s
        await client.post("/abort_request", {"rid": request_id}, timeout_s=timeout_s)

    async def _prove(self, client: HttpClient) -> None:
        """Have it produce a token. Raises what keeps it from that."""
        body = {
            "input_ids": [self._config.end_token_ids[0] if self._config.end_token_ids else 0],
            "sampling_params": {"max_new_tokens": 1, "temperature": 0.0, "ignore_eos": True},
        }
        answer = await client.post_json(_GENERATE, body, timeout_s=client.config.probe_timeout_s)
        ids = answer.get("output_ids") if isinstance(answer, dict) else None
        if not isinstance(ids, list) or len(ids) != 1:
            raise EngineFailed(f"{client.config.url}{_GENERATE} answered without a token")

    async def _read_page(self, client: HttpClient) -> Exposition:
        return Exposition(await client.get("/metrics", timeout_s=client.config.health_timeout_s))


def _sampling(sampling: SamplingParams, emitted: int) -> dict[str, Any]:
    params: dict[str, Any] = {
        "max_new_tokens": sampling.max_tokens - emitted,
        "temperature": sampling.temperature,
        "top_p": sampling.top_p,
        "top_k": sampling.top_k or _ALL,
        "min_p": sampling.min_p,
        "repetition_penalty": sampling.repetition_penalty,
        "presence_penalty": sampling.presence_penalty,
        "frequency_penalty": sampling.frequency_penalty,
        "sampling_seed": continuation_seed(sampling.seed, emitted) % _SEEDS,
        "min_new_tokens": max(sampling.min_tokens - emitted, 0),
        "ignore_eos": sampling.ignore_eos,
    }
    if sampling.stop_token_ids:
        params["stop_token_ids"] = list(sampling.stop_token_ids)
    if sampling.logit_bias:
        params["logit_bias"] = {str(key): value for key, value in sampling.logit_bias.items()}
    return params


_SEEDS = 2**63
"""It takes no negative ones."""
