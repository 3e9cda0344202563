"""What a server offers: models, endpoints, context, tokenizer, gauges. Found out by asking.

Nothing here judges: an endpoint that answers wrongly is still offered, and the checks will say so.
"""

from dataclasses import dataclass, replace
from typing import Any

import msgspec

from steelyard.contract.errors import EngineLost, InvalidRequest, Unauthorised, UnknownModel
from steelyard.lab.verify.endpoints import Endpoint, request_body
from steelyard.lab.verify.exchange import Exchange, HttpRequest
from steelyard.lab.verify.http_client import send
from steelyard.lab.verify.metrics import RUNNING_GAUGES, read_metrics
from steelyard.lab.verify.target import Target

__all__ = ["Offer", "discover", "post"]

_PATIENCE_S = 60.0
"""For the first answers: a server may have to load or compile something for them."""
_ABSENT = frozenset({0, 404, 405, 501})

_POSTS = (
    *(endpoint.path for endpoint in Endpoint),
    *("/tokenize", "/detokenize", "/v1/responses", "/v1/embeddings", "/v1/messages"),
    *("/v1/rerank", "/v1/score", "/v1/audio/transcriptions"),
)
_GETS = ("/v1/models", "/health", "/readiness", "/metrics", "/version", "/props")


@dataclass(frozen=True, slots=True, kw_only=True)
class Offer:
    """What was found."""

    server: str
    """Product and version, as far as the server tells them."""
    models: tuple[str, ...]
    model: str
    """The one that is verified."""
    context_tokens: int | None
    """Prompt and output together; None when the server does not tell."""
    paths: frozenset[str]
    """Of the paths that were tried, those that are there."""
    logprobs: frozenset[Endpoint] = frozenset()
    """Where log-probabilities are delivered when asked for."""
    refuses_unknown: bool = False
    """True when a parameter that nobody knows is refused."""
    running_gauge: str | None = None
    """Metric of the requests in progress; None when none is known."""

    @property
    def endpoints(self) -> tuple[Endpoint, ...]:
        return tuple(endpoint for endpoint in Endpoint if endpoint.path in self.paths)

    @property
    def unchecked_paths(self) -> tuple[str, ...]:
        """Offered, but no check asks them."""
        return tuple(sorted(self.paths & _UNCHECKED))


_UNCHECKED = frozenset(
    {"/v1/responses", "/v1/messages", "/v1/rerank", "/v1/score", "/v1/audio/transcriptions"}
)


async def discover(target: Target) -> Offer:
    """Ask a server what it offers. Takes about a dozen small requests.

    Raises `EngineLost` when nobody answers, `Unauthorised` when a key is missing or wrong,
    `UnknownModel` when there is no model to verify, `InvalidRequest` when nothing that produces
    text is there.
    """
    listing = await _get(target, "/v1/models")
    if listing.head is None:
        raise EngineLost(f"{target.url}: {'; '.join(listing.faults)}")
    if listing.status in (401, 403):
        raise Unauthorised(
            f"{target.url} wants a key (status {listing.status})",
            fix="name the variable that holds it with --api-key-env",
        )
    cards = _cards(listing)
    models = tuple(card["id"] for card in cards)
    chosen = target.model or next(iter(models), None)
    if chosen is None:
        raise UnknownModel(f"{target.url} lists no models", fix="name one with --model")
    paths = await _paths(target)
    if not any(endpoint.path in paths for endpoint in Endpoint):
        raise InvalidRequest(
            f"{target.url} offers neither chat nor text completions", fix="check the URL"
        )
    version, props = [await _object(target, path, paths) for path in ("/version", "/props")]
    context = next((c.get("max_model_len") for c in cards if c["id"] == chosen), None)
    settings = props.get("default_generation_settings")
    if context is None and isinstance(settings, dict):
        context = settings.get("n_ctx")
    offer = Offer(
        server=_server(listing, cards, version, props),
        models=models,
        model=chosen,
        context_tokens=context if isinstance(context, int) else None,
        paths=paths,
    )
    return await _with_abilities(target, offer)


async def post(target: Target, path: str, body: Any) -> Exchange:
    """POST a value as JSON."""
    request = HttpRequest("POST", path, msgspec.json.encode(body))
    return await send(target, request, timeout_s=_PATIENCE_S)


async def _get(target: Target, path: str) -> Exchange:
    return await send(target, HttpRequest("GET", path), timeout_s=_PATIENCE_S)


async def _with_abilities(target: Target, offer: Offer) -> Offer:
    logprobs = [e for e in offer.endpoints if await _gives_logprobs(target, e, offer.model)]
    first = offer.endpoints[0]
    body = request_body(first, offer.model, "Hi", {"max_tokens": 1, "steelyard_unknown": 1})
    unknown = await post(target, first.path, body)
    gauge = None
    if "/metrics" in offer.paths:
        metrics = await _get(target, "/metrics")
        names = read_metrics(metrics.body.decode("utf-8", "replace")).values
        gauge = next((name for name in RUNNING_GAUGES if name in names), None)
    return replace(
        offer,
        logprobs=frozenset(logprobs),
        refuses_unknown=400 <= unknown.status < 500,
        running_gauge=gauge,
    )


async def _paths(target: Target) -> frozenset[str]:
    """Those of the known paths that are there."""
    found = {path for path in _POSTS if (await post(target, path, {})).status not in _ABSENT}
    for path in _GETS:
        if (await _get(target, path)).status not in _ABSENT:
            found.add(path)
    return frozenset(found)


async def _gives_logprobs(target: Target, endpoint: Endpoint, model: str) -> bool:
    parameters = {"max_tokens": 1, "temperature": 0, **endpoint.logprobs(2)}
    body = request_body(endpoint, model, "Hi", parameters)
    exchange = await post(target, endpoint.path, body)
    choices = _decoded(exchange).get("choices") if exchange.is_ok else None
    first = choices[0] if isinstance(choices, list) and choices else None
    return isinstance(first, dict) and bool(first.get("logprobs"))


async def _object(target: Target, path: str, paths: frozenset[str]) -> dict[str, Any]:
    if path not in paths:
        return {}
    return _decoded(await _get(target, path))


def _decoded(exchange: Exchange) -> dict[str, Any]:
    """A JSON object; empty when the body is none."""
    try:
        decoded = exchange.json()
    except ValueError:
        return {}
    return decoded if isinstance(decoded, dict) else {}


def _cards(listing: Exchange) -> list[dict[str, Any]]:
    data = _decoded(listing).get("data")
    cards = data if isinstance(data, list) else []
    return [c for c in cards if isinstance(c, dict) and isinstance(c.get("id"), str)]


def _server(
    listing: Exchange, cards: list[dict[str, Any]], version: dict[str, Any], props: dict[str, Any]
) -> str:
    """The product, as headers and model cards name it, and its version."""
    owner = next((str(card["owned_by"]) for card in cards if card.get("owned_by")), None)
    product = listing.header("server") or owner or "unknown"
    if owner and product in _WEB_SERVERS:
        product = owner
    number = version.get("version") or props.get("build_info")
    return f"{product} {number}" if number else product


_WEB_SERVERS = frozenset({"uvicorn", "hypercorn", "nginx", "envoy"})
