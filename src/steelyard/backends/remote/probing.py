"""Finds out what a server is and can do: which model, how long a context, ids or text.

    /v1/models          the model's name there, and its context where the server tells it
    /v1/completions     one token after a prompt of ids, with the ids of the answer
                        → tokens; no ids in the answer → text, after a prompt of ids
                        refused → once more with a prompt of text → text
    the same            with log-probabilities by id, in token mode
    /health, /metrics   whether there are any

Each question is one short request; the second is also the proof that the server really works.
"""

from dataclasses import dataclass
from typing import Any

from steelyard.backends.http.client import HttpClient
from steelyard.backends.remote.config import RemoteConfig, TextCodec
from steelyard.contract.errors import EngineFailed, InvalidRequest, SettingsError

__all__ = ["Abilities", "find_model", "probe"]

_COMPLETIONS = "/v1/completions"
_PROBE_TEXT = "Hello"
_SHOWN_MODELS = 10


@dataclass(frozen=True, slots=True)
class Abilities:
    """What a server is and can do."""

    model: str
    """Its own name for the model."""
    context_tokens: int | None
    """None: it does not say."""
    takes_ids: bool
    """A prompt may be token ids."""
    gives_ids: bool
    """The answer's tokens come with their ids."""
    has_logprobs: bool
    """Log-probabilities come by id."""
    health_path: str


async def probe(client: HttpClient, config: RemoteConfig, text: TextCodec) -> Abilities:
    """Raises `SettingsError` when waiting cannot help, other errors of the tree when it may."""
    health_path = await _health_path(client)
    model, context_tokens = await find_model(client, config)
    ids = text.encode(_PROBE_TEXT, add_special_tokens=False)
    takes_ids, gives_ids = False, False
    if config.mode != "text":
        takes_ids, gives_ids = await _try_ids(client, model, ids)
    if config.mode == "tokens" and not gives_ids:
        raise SettingsError(
            f"tokens was asked for, but {client.config.url} sends no token ids",
            param="remote.mode",
            fix="set remote.mode: auto, or text",
        )
    if not gives_ids:
        if not takes_ids:
            await _require_text(client, model)
        _require_piecewise(text)
    has_logprobs = gives_ids and await _try_logprobs(client, model, ids)
    return Abilities(model, context_tokens, takes_ids, gives_ids, has_logprobs, health_path)


async def _health_path(client: HttpClient) -> str:
    try:
        await client.get("/health", timeout_s=client.config.health_timeout_s)
    except EngineFailed as error:
        if error.param is None:
            raise
        return "/v1/models"  # there is no such page
    return "/health"


async def find_model(client: HttpClient, config: RemoteConfig) -> tuple[str, int | None]:
    """The model's name there, and its context length; None where it does not say. Raises
    `SettingsError` when it serves none that can be meant."""
    answer = await client.get_json("/v1/models", timeout_s=client.config.health_timeout_s)
    cards = {card["id"]: card for card in _cards(answer)}
    name = config.model or (config.served_as if config.served_as in cards else None)
    if name is None and len(cards) == 1:
        name = next(iter(cards))
    if name is None or (cards and name not in cards):
        known = ", ".join(list(cards)[:_SHOWN_MODELS]) or "none"
        raise SettingsError(
            f"{client.config.url} serves no {name or config.served_as}; it serves {known}",
            param="remote.model",
            fix="name one of these",
        )
    context_tokens = cards.get(name, {}).get("max_model_len")
    return name, context_tokens if isinstance(context_tokens, int) else None


def _cards(answer: Any) -> list[dict[str, Any]]:
    data = answer.get("data") if isinstance(answer, dict) else None
    cards = data if isinstance(data, list) else []
    return [card for card in cards if isinstance(card, dict) and isinstance(card.get("id"), str)]


async def _try_ids(client: HttpClient, model: str, ids: list[int]) -> tuple[bool, bool]:
    """Whether it takes ids, and whether it gives them."""
    try:
        choice = await _complete(client, model, ids, {"return_token_ids": True})
    except InvalidRequest:
        return False, False
    given = choice.get("token_ids")
    return True, isinstance(given, list) and all(type(token_id) is int for token_id in given)


async def _try_logprobs(client: HttpClient, model: str, ids: list[int]) -> bool:
    more = {"return_token_ids": True, "logprobs": 0, "return_tokens_as_token_ids": True}
    try:
        choice = await _complete(client, model, ids, more)
    except InvalidRequest:
        return False
    logprobs = choice.get("logprobs")
    tokens = logprobs.get("tokens") if isinstance(logprobs, dict) else None
    if not isinstance(tokens, list) or not tokens:
        return False
    return all(str(token).startswith("token_id:") for token in tokens)


async def _require_text(client: HttpClient, model: str) -> None:
    try:
        await _complete(client, model, _PROBE_TEXT, {})
    except InvalidRequest as error:
        raise SettingsError(
            f"{client.config.url}{_COMPLETIONS} takes neither token ids nor text: {error.message}",
            param="remote.url",
            fix="name a server with the OpenAI API",
        ) from error


async def _complete(
    client: HttpClient, model: str, prompt: str | list[int], more: dict[str, Any]
) -> dict[str, Any]:
    """The choice of an answer of one token."""
    body = {"model": model, "prompt": prompt, "max_tokens": 1, "temperature": 0.0, **more}
    answer = await client.post_json(_COMPLETIONS, body, timeout_s=client.config.probe_timeout_s)
    choices = answer.get("choices") if isinstance(answer, dict) else None
    if not isinstance(choices, list) or not choices or not isinstance(choices[0], dict):
        raise EngineFailed(
            f"{client.config.url} answered {_COMPLETIONS} with what is no completion"
        )
    return choices[0]


def _require_piecewise(text: TextCodec) -> None:
    """Pieces of text must be encodable one by one."""
    pieces = ("Hel", "lo wor", "ld", " again")
    ids = [i for piece in pieces for i in text.encode(piece, add_special_tokens=False)]
    if text.decode(ids) != "".join(pieces):
        raise SettingsError(
            "this model's tokenizer cannot take in a text piece by piece, and the endpoint only "
            "speaks text",
            param="remote.mode",
            fix="use an endpoint that returns token ids, such as vLLM or Steelyard",
        )
