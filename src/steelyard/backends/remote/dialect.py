"""`http.Dialect` for OpenAI-compatible servers: vLLM, Steelyard, llama.cpp, and whoever else.

Tokens go both ways where the server can; elsewhere its answers are texts, and then a stream that
broke cannot be continued, which `EngineInfo.can_continue` says.
"""

import uuid

from steelyard.backends.http.client import HttpClient
from steelyard.backends.http.dialect import Call, Load, Reader
from steelyard.backends.remote.bodies import completion_body
from steelyard.backends.remote.config import RemoteConfig, TextCodec
from steelyard.backends.remote.probing import Abilities, probe
from steelyard.backends.remote.readers import TextReader, TokenReader
from steelyard.contract import EngineInfo, GenerateRequest
from steelyard.contract.errors import EngineLost, UnsupportedFeature

__all__ = ["RemoteDialect"]


class RemoteDialect:
    """One model of one server; `open` learns what it can do."""

    def __init__(self, config: RemoteConfig, text: TextCodec) -> None:
        self._config = config
        self._text = text
        self._abilities: Abilities | None = None

    async def open(self, client: HttpClient) -> EngineInfo:
        """See `http.Dialect`."""
        found = self._abilities = await probe(client, self._config, self._text)
        own_limit, limit = self._config.context_tokens, found.context_tokens
        return EngineInfo(
            model=self._config.served_as,
            context_tokens=own_limit if limit is None else min(own_limit, limit),
            vocab_size=self._config.vocab_size,
            end_token_ids=self._config.end_token_ids,
            epoch=uuid.uuid4().hex,
            can_continue=found.gives_ids,
            details={
                "engine": "remote",
                "url": client.config.url,
                "model": found.model,
                "mode": "tokens" if found.gives_ids else "text",
            },
        )

    async def check(self, client: HttpClient) -> None:
        """See `http.Dialect`."""
        await client.get(self._known.health_path, timeout_s=client.config.health_timeout_s)

    async def measure(self, client: HttpClient) -> Load | None:
        """See `http.Dialect`. Only proves that somebody is there: servers count differently."""
        await self.check(client)
        return None

    def call(self, request: GenerateRequest) -> Call:
        """See `http.Dialect`."""
        known = self._known
        if not known.gives_ids:
            _refuse_ids(request)
        if request.sampling.logprobs is not None and not known.has_logprobs:
            raise UnsupportedFeature(
                "logprobs are not supported by the endpoint behind this server", param="logprobs"
            )
        ids = [*request.prompt_ids, *request.emitted_ids]
        prompt: str | list[int] = ids
        if not known.takes_ids:
            prompt = self._text.decode(ids, skip_special_tokens=False)
        body = completion_body(request, model=known.model, prompt=prompt, wants_ids=known.gives_ids)
        return Call("/v1/completions", body)

    def reader(self, request: GenerateRequest) -> Reader:
        """See `http.Dialect`."""
        if self._known.gives_ids:
            return TokenReader(request.sampling.logprobs)
        return TextReader(self._text)

    async def abort(self, client: HttpClient, request_id: str) -> None:
        """The closed connection is enough."""

    @property
    def _known(self) -> Abilities:
        if self._abilities is None:
            raise EngineLost("not connected")
        return self._abilities


def _refuse_ids(request: GenerateRequest) -> None:
    """Texts do not show which tokens they are made of."""
    sampling = request.sampling
    for param, is_asked in (
        ("stop_token_ids", bool(sampling.stop_token_ids)),
        ("min_tokens", sampling.min_tokens > 0),
        ("logit_bias", bool(sampling.logit_bias)),
    ):
        if is_asked:
            raise UnsupportedFeature(
                f"{param} is not supported by the endpoint behind this server", param=param
            )
