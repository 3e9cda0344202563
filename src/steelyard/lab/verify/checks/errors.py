"""Checks of what clients are told when they ask wrongly: 4xx, OpenAI's shape, no internals."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import msgspec

from steelyard.lab.verify.check import check, check_both
from steelyard.lab.verify.endpoints import Endpoint, request_body
from steelyard.lab.verify.exchange import Exchange, HttpRequest
from steelyard.lab.verify.material import HELLO
from steelyard.lab.verify.probe import Probe

__all__ = ["CHECKS"]

_NOT_JSON = (b"{bad", b"", b'{"model": "x",', b'{"model": "\xff\xfe"}', b"[]", b"null", b'"text"')
_WRONG_TYPES: tuple[dict[str, Any], ...] = (
    {"max_tokens": "ten"},
    {"temperature": "hot"},
    {"top_p": []},
    {"stream": "maybe"},
    {"stop": 5},
    {"n": {}},
    {"seed": "x"},
    {"logit_bias": "x"},
)
_OUT_OF_RANGE: tuple[dict[str, Any], ...] = (
    {"max_tokens": -1},
    {"temperature": -1},
    {"top_p": 1.5},
    {"n": -1},
    {"presence_penalty": 9},
    {"frequency_penalty": -9},
)
_HOSTILE: tuple[tuple[str, bytes], ...] = (
    ("deep nesting", b'{"model": ' + b"[" * 20_000 + b"]" * 20_000 + b"}"),
    ("an endless number", b'{"max_tokens": ' + b"9" * 5000 + b"}"),
    ("a key a hundred thousand characters long", b'{"' + b"k" * 100_000 + b'": 1}'),
)


@check_both(
    "errors.malformed",
    "A body that is no JSON object is refused.",
    "400, whatever the parser says.",
)
async def _malformed(probe: Probe, endpoint: Endpoint) -> None:
    for body in _NOT_JSON:
        probe.refused(await _post(probe, endpoint, body), f"the body {body!r}")


@check_both(
    "errors.missing",
    "A request without its subject is refused.",
    "messages and prompt are required.",
)
async def _missing(probe: Probe, endpoint: Endpoint) -> None:
    without = {"model": probe.offer.model, "max_tokens": 1}
    probe.refused(await _post(probe, endpoint, _json(without)), "a request without a subject")
    if endpoint is Endpoint.CHAT:
        empty = {**without, "messages": []}
        probe.refused(await _post(probe, endpoint, _json(empty)), "an empty list of messages")


@check_both(
    "errors.wrong-types",
    "A value of the wrong type is refused.",
    "A value that is not understood must not be replaced by a default silently.",
)
async def _wrong_types(probe: Probe, endpoint: Endpoint) -> None:
    for wrong in _WRONG_TYPES:
        body = request_body(endpoint, probe.offer.model, HELLO, {"max_tokens": 1, **wrong})
        probe.refused(await _post(probe, endpoint, _json(body)), str(wrong))
    for subject in ({"messages": "hi"}, {"messages": [{"role": "user", "content": 5}]}):
        if endpoint is Endpoint.CHAT:
            body = {"model": probe.offer.model, "max_tokens": 1, **subject}
            probe.refused(await _post(probe, endpoint, _json(body)), str(subject))


@check_both(
    "errors.out-of-range",
    "A value out of its range is refused.",
    "OpenAI's ranges: temperature 0 to 2, top_p 0 to 1, penalties -2 to 2, counts from 1.",
)
async def _out_of_range(probe: Probe, endpoint: Endpoint) -> None:
    for wrong in _OUT_OF_RANGE:
        body = request_body(endpoint, probe.offer.model, HELLO, {"max_tokens": 1, **wrong})
        probe.refused(await _post(probe, endpoint, _json(body)), str(wrong))


@check_both(
    "errors.unknown-model",
    "A model that is not served is refused by name.",
    "404 with code model_not_found.",
)
async def _unknown_model(probe: Probe, endpoint: Endpoint) -> None:
    body = request_body(endpoint, "no-such-model-is-served", HELLO, {"max_tokens": 1})
    exchange = await _post(probe, endpoint, _json(body))
    probe.refused(exchange, "an unknown model", (400, 404))


@check_both(
    "errors.streamed",
    "A bad request for a stream gets an error with a status, not a stream.",
    "Validate before the first byte is sent.",
)
async def _streamed(probe: Probe, endpoint: Endpoint) -> None:
    body = request_body(endpoint, probe.offer.model, HELLO, {"stream": True, "temperature": "hot"})
    probe.refused(await _post(probe, endpoint, _json(body)), "a bad request for a stream")


@check(
    "errors.paths",
    "Unknown paths get 404 and wrong methods 405.",
    "No page for people, no redirect, no 200.",
)
async def _paths(probe: Probe) -> None:
    unknown = await probe.send(HttpRequest("POST", "/v1/no/such/path", b"{}"))
    probe.claim(unknown.status == 404, f"an unknown path got status {unknown.status}", unknown)
    wrong = await probe.send(HttpRequest("GET", probe.main.path))
    problem = f"GET {probe.main.path} got status {wrong.status}"
    probe.claim(wrong.status in (404, 405), problem, wrong)


@check(
    "errors.contradictions",
    "Parameters that contradict each other are refused.",
    "top_logprobs needs logprobs, stream_options needs stream.",
)
async def _contradictions(probe: Probe) -> None:
    cases: Sequence[tuple[Endpoint, dict[str, Any]]] = (
        (Endpoint.CHAT, {"top_logprobs": 3}),
        (probe.main, {"stream_options": {"include_usage": True}}),
    )
    for endpoint, wrong in cases:
        if endpoint in probe.offer.endpoints:
            probe.refused(await probe.post(endpoint, HELLO, **wrong), str(wrong))


@check(
    "errors.hostile",
    "Bodies made to break parsers are refused, and the server lives on.",
    "Limit depth and sizes before building anything.",
)
async def _hostile(probe: Probe) -> None:
    for what, body in _HOSTILE:
        exchange = await _post(probe, probe.main, body)
        is_refused = 400 <= exchange.status < 500
        problem = f"{what} got status {exchange.status} {'; '.join(exchange.faults)}"
        probe.claim(is_refused, problem, exchange)
    for what, value in (("max_tokens", 10**18), ("n", 10**6), ("seed", 2**70)):
        exchange = await probe.post(probe.main, HELLO, **{"max_tokens": 1, what: value})
        is_handled = 200 <= exchange.status < 500
        problem = f"{what} {value} got status {exchange.status} {'; '.join(exchange.faults)}"
        probe.claim(is_handled, problem, exchange)
    await probe.ask(probe.main, HELLO, max_tokens=1)


@check(
    "errors.surrogate",
    "Half a surrogate pair is refused or replaced, and breaks nothing.",
    "JSON can spell text that UTF-8 cannot.",
)
async def _surrogate(probe: Probe) -> None:
    body = _json(request_body(probe.main, probe.offer.model, "@@", {"max_tokens": 1}))
    exchange = await _post(probe, probe.main, body.replace(b"@@", b"\\ud800"))
    if not exchange.is_ok:
        probe.refused(exchange, "half a surrogate pair")


@check(
    "errors.key",
    "Without the key, and with a wrong one, nothing is answered.",
    "401 with OpenAI's error shape.",
)
async def _key(probe: Probe) -> None:
    if probe.target.api_key is None:
        probe.skip("no key is in use")
    for what, key in (("no key", ""), ("a wrong key", "wrong-key")):
        request = probe.request(probe.main, HELLO, max_tokens=1)
        request = replace(request, key=key)
        probe.refused(await probe.send(request), what, (401, 403))


async def _post(probe: Probe, endpoint: Endpoint, body: bytes) -> Exchange:
    probe.need(endpoint)
    return await probe.send(HttpRequest("POST", endpoint.path, body))


def _json(body: dict[str, Any]) -> bytes:
    return msgspec.json.encode(body)


CHECKS = (
    *_malformed,
    *_missing,
    *_wrong_types,
    *_out_of_range,
    *_unknown_model,
    *_streamed,
    _paths,
    _contradictions,
    _hostile,
    _surrogate,
    _key,
)
