"""Checks of the list of models."""

from typing import TypeVar
from urllib.parse import quote

import msgspec

from steelyard.lab.verify.answers import Malformed
from steelyard.lab.verify.check import check
from steelyard.lab.verify.endpoints import Endpoint, request_body
from steelyard.lab.verify.exchange import Exchange, HttpRequest
from steelyard.lab.verify.probe import Probe
from steelyard.lab.verify.reading import convert
from steelyard.lab.verify.schemas import ModelCard, ModelList

__all__ = ["CHECKS"]

StructT = TypeVar("StructT", bound=msgspec.Struct)
_MAX_MODELS = 8


@check(
    "models.list",
    "The list of models has OpenAI's shape, and names each model once.",
    "Compare GET /v1/models with OpenAI's reference.",
)
async def _list(probe: Probe) -> None:
    exchange = await probe.get("/v1/models")
    listed = _read(probe, exchange, ModelList)
    probe.claim(listed.object == "list", f"object is {listed.object!r}, not 'list'", exchange)
    probe.claim(bool(listed.data), "no model is listed", exchange)
    kinds = {card.object for card in listed.data} - {"model"}
    probe.claim(not kinds, f"objects of kind {sorted(kinds)} are listed", exchange)
    names = [card.id for card in listed.data]
    probe.claim(len(set(names)) == len(names), "a model is listed twice", exchange)
    probe.claim(all(names), "a model has an empty id", exchange)


@check(
    "models.one",
    "A listed model can be looked up by its id.",
    "GET /v1/models/{id}; ids with slashes arrive percent-encoded.",
)
async def _one(probe: Probe) -> None:
    path = f"/v1/models/{quote(probe.offer.model, safe='')}"
    exchange = await probe.send(HttpRequest("GET", path))
    if exchange.status in (404, 405, 501):
        probe.skip(f"GET /v1/models/{{id}} got status {exchange.status}")
    card = _read(probe, exchange, ModelCard)
    probe.claim(card.id == probe.offer.model, f"another model came: {card.id}", exchange)


@check(
    "models.each-answers",
    "Every listed model answers a request.",
    "A model that cannot be used should not be listed.",
)
async def _each_answers(probe: Probe) -> None:
    if not probe.offer.models:
        probe.skip("no model is listed")
    for model in probe.offer.models[:_MAX_MODELS]:
        statuses = {path: await _ask(probe, path, model) for path in _paths(probe)}
        is_used = any(200 <= status < 300 for status in statuses.values())
        probe.claim(is_used, f"{model} answers nothing: {statuses}")
    if len(probe.offer.models) > _MAX_MODELS:
        probe.note(f"asked the first {_MAX_MODELS} of {len(probe.offer.models)}")


def _paths(probe: Probe) -> list[str]:
    embeddings = ["/v1/embeddings"] if "/v1/embeddings" in probe.offer.paths else []
    return [endpoint.path for endpoint in probe.offer.endpoints] + embeddings


async def _ask(probe: Probe, path: str, model: str) -> int:
    endpoint = next((one for one in Endpoint if one.path == path), None)
    if endpoint is None:
        body = {"model": model, "input": "Hi"}
    else:
        body = request_body(endpoint, model, "Hi", {"max_tokens": 1})
    return (await probe.send(HttpRequest("POST", path, msgspec.json.encode(body)))).status


def _read(probe: Probe, exchange: Exchange, schema: type[StructT]) -> StructT:
    probe.claim(exchange.is_ok, f"status {exchange.status}", exchange)
    probe.claim(
        exchange.content_type == "application/json",
        f"the content type is {exchange.header('content-type')}",
        exchange,
    )
    try:
        return convert(exchange.json(), schema)
    except (ValueError, Malformed) as error:
        probe.fail(f"cannot be read: {error}", exchange)


CHECKS = (_list, _one, _each_answers)
