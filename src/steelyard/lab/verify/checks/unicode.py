"""Checks of characters that are several bytes, which tokens may cut anywhere."""

import json

from steelyard.lab.verify.check import check, check_both
from steelyard.lab.verify.endpoints import Endpoint, request_body
from steelyard.lab.verify.exchange import HttpRequest
from steelyard.lab.verify.material import EMOJI, SCRIPTS
from steelyard.lab.verify.probe import Probe

__all__ = ["CHECKS"]

_REPLACEMENT = "\ufffd"


@check_both(
    "unicode.output",
    "Characters of several bytes arrive whole, streamed or not.",
    "Hold back incomplete UTF-8 until its last byte is there.",
)
async def _output(probe: Probe, endpoint: Endpoint) -> None:
    seen = False
    for subject in SCRIPTS:
        for limit in (15, 16, 17):
            whole = await probe.ask(endpoint, subject, max_tokens=limit)
            streamed = await probe.stream(endpoint, subject, max_tokens=limit)
            seen = seen or any(ord(c) > 0x7F and c != _REPLACEMENT for c in whole.text)
            inner = whole.text.rstrip(_REPLACEMENT)
            problem = f"broken characters inside the text {whole.text[:40]!r}"
            probe.claim(_REPLACEMENT not in inner, problem, whole)
            is_same = streamed.text.rstrip(_REPLACEMENT) == inner
            problem = f"streamed {streamed.text[:40]!r}, whole {whole.text[:40]!r}"
            probe.claim(is_same, problem, whole, streamed)
    if not seen and not probe.problems:
        probe.skip("the model wrote only ASCII")


@check(
    "unicode.escapes",
    "A character written as a JSON escape is the character itself.",
    "Surrogate pairs (\\ud83c\\udf89) are one character.",
)
async def _escapes(probe: Probe) -> None:
    body = request_body(probe.main, probe.offer.model, EMOJI, {"max_tokens": 8, "temperature": 0})
    plain = await probe.ask(probe.main, EMOJI, max_tokens=8)
    escaped = json.dumps(body, ensure_ascii=True).encode()
    exchange = await probe.send(HttpRequest("POST", probe.main.path, escaped))
    if not probe.claim(exchange.is_ok, f"escapes got status {exchange.status}", exchange):
        return
    count = exchange.json().get("usage", {}).get("prompt_tokens")
    wanted = plain.counts.prompt_tokens
    problem = f"{count} prompt tokens with escapes, {wanted} without"
    probe.claim(count == wanted, problem, plain, exchange)


@check_both(
    "unicode.stop",
    "A stop string may be an emoji.",
    "Search the decoded text, not the tokens' bytes one by one.",
)
async def _stop(probe: Probe, endpoint: Endpoint) -> None:
    subject = EMOJI if endpoint is Endpoint.TEXT else SCRIPTS[3]
    truth = await probe.ask(endpoint, subject, max_tokens=24)
    stop = next((c for c in truth.text[1:] if ord(c) > 0xFFFF), None)
    if stop is None:
        probe.skip("the model wrote no emoji")
    wanted = truth.text[: truth.text.index(stop)]
    for answer in (
        await probe.ask(endpoint, subject, max_tokens=24, stop=stop),
        await probe.stream(endpoint, subject, max_tokens=24, stop=stop),
    ):
        problem = f"with stop {stop} the text is {answer.text!r}, not {wanted!r}"
        probe.claim(answer.text == wanted, problem, truth, answer)
        reason = answer.finish_reason
        probe.claim(reason == "stop", f"finish_reason is {reason!r}", answer)


CHECKS = (*_output, _escapes, *_stop)
