"""Finds out about a server before it is measured: its model, which parameters it takes, how it
counts, and whether it answers at all. Sends a handful of short requests.
"""

import asyncio
import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

import aiohttp
import msgspec

from steelyard.contract.errors import InvalidRequest
from steelyard.lab.client.exchange import Exchange
from steelyard.lab.client.pool import ConnectionPool
from steelyard.lab.client.target import Extras, RequestWriter, Target, resolve
from steelyard.lab.load import TokenScale, probe_text
from steelyard.lab.outcomes import Outcome

__all__ = ["ServerFacts", "find_model", "probe", "send_once"]

_TIMEOUT_S = 60.0
_PATIENCE_S = 300.0
"""For a first answer: a server may still be compiling."""
_OPTIONAL = ("return_token_ids", "ignore_eos", "include_usage")
"""Parameters that are given up one after the other when a server refuses them."""


@dataclasses.dataclass(frozen=True, slots=True)
class ServerFacts:
    """What a probe found out."""

    target: Target
    """With the extras that the server takes."""
    server: str
    version: str
    context_tokens: int | None
    counts_tokens: bool
    scale: TokenScale


async def find_model(url: str, headers: Mapping[str, str]) -> tuple[str, int | None]:
    """The first model that the server lists, and its context in tokens where it says so.

    Raises `InvalidRequest` when there is no such server, or it lists none.
    """
    listed = await _get(url, "/v1/models", headers)
    models = listed.get("data") if isinstance(listed, dict) else None
    if not isinstance(models, list) or not models or not isinstance(models[0], dict):
        raise InvalidRequest("the server lists no model", param="model", fix="name one (--model)")
    return str(models[0].get("id", "")), _context_of(models[0])


async def probe(target: Target, *, context_tokens: int | None, nonce: str) -> ServerFacts:
    """Raises `InvalidRequest` when the server cannot be asked as `target` says."""
    pool = ConnectionPool(resolve(target.address))
    try:
        target, first = await _accepted(pool, target, nonce)
        counts_tokens = first.usage is not None and first.usage.prompt_tokens is not None
        scale = TokenScale()
        if counts_tokens:
            scale = await _scale(pool, target, context_tokens, nonce)
    finally:
        pool.close()
    version = await _get(target.url, "/version", target.headers, is_optional=True)
    return ServerFacts(
        target=target,
        server=first.server,
        version=str(version.get("version", "")) if isinstance(version, dict) else "",
        context_tokens=context_tokens,
        counts_tokens=counts_tokens,
        scale=scale,
    )


async def send_once(
    pool: ConnectionPool, target: Target, text: str, max_tokens: int, *, request_id: str
) -> Exchange:
    """Send one prompt and wait for the whole answer, or for its failure."""
    loop = asyncio.get_running_loop()
    writer = RequestWriter(target)
    if target.api == "chat":
        body = writer.chat([{"role": "user", "content": text}], max_tokens)
    else:
        body = writer.completion(text, max_tokens)
    exchange = Exchange(session=-1, turn=0, scheduled_s=loop.time())
    await pool.send(exchange, writer.request(body, request_id))
    try:
        async with asyncio.timeout(_PATIENCE_S):
            await exchange.done
    except TimeoutError:
        exchange.fail(Outcome.TIMED_OUT, loop.time(), f"no answer within {_PATIENCE_S:g} s")
        exchange.cancel()
    return exchange


async def _accepted(pool: ConnectionPool, target: Target, nonce: str) -> tuple[Target, Exchange]:
    """The target without what the server refuses, and its first answer."""
    wanted = [name for name in _OPTIONAL if getattr(target.extras, name)]
    for given_up in range(len(wanted) + 1):
        off = dict.fromkeys(wanted[:given_up], False)
        extras: Extras = msgspec.structs.replace(target.extras, **off)
        asked = msgspec.structs.replace(target, extras=extras)
        text = probe_text(16, nonce)
        answer = await send_once(pool, asked, text, 2, request_id=f"probe-{nonce}")
        if answer.outcome in (Outcome.COMPLETE, Outcome.EMPTY):
            return asked, answer
        if answer.outcome is not Outcome.REFUSED:
            break
    raise InvalidRequest(
        f"the server does not answer a short prompt: {answer.outcome_text}",
        param="url",
        fix="is the server running, and the model's name right?",
    )


async def _scale(
    pool: ConnectionPool, target: Target, context_tokens: int | None, nonce: str
) -> TokenScale:
    """How the server counts prompts of two lengths."""
    room = context_tokens or 2048
    points = []
    for words in (min(32, room // 16), min(416, room // 4)):
        text = probe_text(words, nonce)
        answer = await send_once(pool, target, text, 1, request_id=f"probe-{nonce}-{words}")
        counted = None if answer.usage is None else answer.usage.prompt_tokens
        if counted is None:
            return TokenScale()
        points.append((words, counted))
    return TokenScale.fitted(points[0], points[1])


async def _get(
    url: str, path: str, headers: Mapping[str, str], *, is_optional: bool = False
) -> Any:
    """The JSON at a path beside `/v1`; None when it is optional and not there."""
    base = url.rstrip("/").removesuffix("/v1")
    timeout = aiohttp.ClientTimeout(total=_TIMEOUT_S)
    try:
        async with (
            aiohttp.ClientSession(timeout=timeout, headers=dict(headers)) as session,
            session.get(f"{base}{path}") as answer,
        ):
            if answer.status == 200:
                return msgspec.json.decode(await answer.read())
            reason = f"{path} answered {answer.status}"
    except (aiohttp.ClientError, OSError, TimeoutError, ValueError, RecursionError) as error:
        reason = f"{base}{path}: {error or type(error).__name__}"
    if is_optional:
        return None
    raise InvalidRequest(reason, param="url", fix="is the server running?")


def _context_of(model: Mapping[str, Any]) -> int | None:
    """vLLM, SGLang and Steelyard say `max_model_len`, llama.cpp's server `meta.n_ctx`."""
    meta = model.get("meta")
    places: Sequence[Any] = (
        model.get("max_model_len"),
        meta.get("n_ctx") if isinstance(meta, dict) else None,
    )
    return next((place for place in places if isinstance(place, int) and place > 1), None)
