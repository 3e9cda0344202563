"""Malformed and hostile requests, and how each must be refused.

One row per request: what is sent, and status, `code` and `param` of the answer. Rows are data, so
that another door (a worker, a proxy) can be held to the same table.
"""

import json
from dataclasses import dataclass
from typing import Any

from .wire import request

__all__ = ["ROWS", "BadRequest"]

CHAT = "/v1/chat/completions"
TEXT = "/v1/completions"
HI = [{"role": "user", "content": "hi"}]


@dataclass(frozen=True)
class BadRequest:
    """What is sent, byte for byte, and what must come back."""

    name: str
    sent: bytes
    status: int
    code: str
    param: str | None = None
    ends_input: bool = False
    """The client sends nothing more and says so (FIN)."""


def raw(name: str, body: bytes, status: int, code: str, **more: Any) -> BadRequest:
    return BadRequest(name, request(CHAT, body), status, code, **more)


def chat(name: str, param: str | None, code: str = "invalid_value", **changes: Any) -> BadRequest:
    body = {"model": "fake", "messages": HI, "max_tokens": 3} | changes
    return BadRequest(name, request(CHAT, json.dumps(body).encode()), 400, code, param)


def text(name: str, param: str | None, code: str = "invalid_value", **changes: Any) -> BadRequest:
    body = {"model": "fake", "prompt": "hi", "max_tokens": 3} | changes
    return BadRequest(name, request(TEXT, json.dumps(body).encode()), 400, code, param)


def http(name: str, sent: bytes, status: int, code: str, **more: Any) -> BadRequest:
    return BadRequest(name, sent, status, code, **more)


_BODY = json.dumps({"model": "fake", "messages": HI}).encode()
_WITH = b'{"model":"fake","messages":[{"role":"user","content":"hi"}],%b}'

_JSON = [
    raw("an empty body", b"", 400, "invalid_value"),
    raw("no JSON", b"hello", 400, "invalid_value"),
    raw("an array", b"[]", 400, "invalid_value"),
    raw("null", b"null", 400, "invalid_value"),
    raw("a string", b'"hi"', 400, "invalid_value"),
    raw("half an object", _BODY[:30], 400, "invalid_value"),
    raw("two objects", _BODY + _BODY, 400, "invalid_value"),
    raw("a byte order mark", b"\xef\xbb\xbf" + _BODY, 400, "invalid_value"),
    raw("UTF-16", _BODY.decode().encode("utf-16"), 400, "invalid_value"),
    raw("invalid UTF-8", _BODY.replace(b"hi", b"\xff\xfe"), 400, "invalid_value"),
    raw("an overlong UTF-8 slash", _BODY.replace(b"hi", b"\xc0\xaf"), 400, "invalid_value"),
    raw("a UTF-8 surrogate", _BODY.replace(b"hi", b"\xed\xa0\x80"), 400, "invalid_value"),
    raw("a lone escaped surrogate", _BODY.replace(b"hi", b"\\ud800"), 400, "invalid_value"),
    raw("a bad escape", _BODY.replace(b"hi", b"\\x41"), 400, "invalid_value"),
    raw("single quotes", _BODY.replace(b'"', b"'"), 400, "invalid_value"),
    raw("a trailing comma", _WITH % b'"n":1,', 400, "invalid_value"),
    raw("a comment", _WITH % b'"n":1 /* one */', 400, "invalid_value"),
    raw("NaN", _WITH % b'"temperature":NaN', 400, "invalid_value"),
    raw("Infinity", _WITH % b'"temperature":Infinity', 400, "invalid_value"),
    raw("1e999", _WITH % b'"temperature":1e999', 400, "invalid_value", param="temperature"),
    raw("a leading zero", _WITH % b'"n":01', 400, "invalid_value"),
    raw("5,000 digits", _WITH % (b'"seed":' + b"9" * 5000), 400, "invalid_value", param="seed"),
    raw("duplicate keys", _WITH % b'"n":1,"n":2', 400, "invalid_value", param="n"),
    raw(
        "another model behind the first",
        _WITH % b'"model":"x"',
        400,
        "invalid_value",
        param="model",
    ),
    raw("100,000 levels", b"[" * 100_000, 400, "invalid_value"),
    raw(
        "100,000 levels in a known field",
        _WITH % (b'"tools":' + b"[" * 100_000),
        400,
        "invalid_value",
    ),
    raw("a megabyte of blanks", b" " * 1_000_000, 400, "invalid_value"),
    raw(
        "a million empty arrays",
        b'{"messages":[' + b"[]," * 1_000_000 + b"[]]}",
        400,
        "invalid_value",
        param="messages[0]",
    ),
]

_TYPES = [
    chat("no model", "model", model=None),
    chat("a number as model", "model", model=5),
    chat("no messages", "messages", messages=None),
    chat("empty messages", "messages", messages=[]),
    chat("messages as text", "messages", messages="hi"),
    chat("a message without role", "messages[0].role", messages=[{"content": "hi"}]),
    chat("an unknown role", "messages[0].role", messages=[{"role": "root", "content": "hi"}]),
    chat("a message without content", "messages[0].content", messages=[{"role": "user"}]),
    chat("a misspelt message", "messages[0].contnt", messages=[{"role": "user", "contnt": "hi"}]),
    chat(
        "an image",
        "messages[0].content[0].type",
        "unsupported_parameter",
        messages=[{"role": "user", "content": [{"type": "image_url", "image_url": {"url": "x"}}]}],
    ),
    chat("10,000 messages", "messages", messages=HI * 10_000),
    chat("max_tokens as text", "max_tokens", max_tokens="3"),
    chat("max_tokens 0", "max_tokens", max_tokens=0),
    chat("a negative max_tokens", "max_tokens", max_tokens=-1),
    chat("a broken max_tokens", "max_tokens", max_tokens=1.5),
    chat("true as max_tokens", "max_tokens", max_tokens=True),
    chat("max_tokens 2**40", "max_tokens", max_tokens=2**40),
    chat("max_tokens beyond the context", "messages", "context_length_exceeded", max_tokens=10**6),
    chat(
        "a prompt beyond the context",
        "messages",
        "context_length_exceeded",
        messages=[{"role": "user", "content": "x" * 50_000}],
    ),
    chat("a negative temperature", "temperature", temperature=-0.1),
    chat("temperature 3", "temperature", temperature=3),
    chat("temperature as text", "temperature", temperature="hot"),
    chat("top_p 0", "top_p", top_p=0),
    chat("top_p 1.1", "top_p", top_p=1.1),
    chat("min_p -1", "min_p", min_p=-1),
    chat("top_k -2", "top_k", top_k=-2),
    chat("n 0", "n", n=0),
    chat("n 1,000,000", "n", n=10**6),
    chat("repetition_penalty 0", "repetition_penalty", repetition_penalty=0),
    chat("presence_penalty 2.5", "presence_penalty", presence_penalty=2.5),
    chat("frequency_penalty -3", "frequency_penalty", frequency_penalty=-3),
    chat("a seed of 65 bits", "seed", seed=2**64),
    chat("100,000 stop strings", "stop", stop=["x"] * 100_000),
    chat("an empty stop string", "stop", stop=""),
    chat("a stop string of 10,000 characters", "stop", stop="x" * 10_000),
    chat("numbers as stop strings", "stop[0]", stop=[1]),
    chat("a foreign stop token", "stop_token_ids", stop_token_ids=[10**9]),
    chat("100,000 stop tokens", "stop_token_ids", stop_token_ids=[1] * 100_000),
    chat("logit_bias for a word", "logit_bias", logit_bias={"hello": 1}),
    chat("logit_bias for a foreign token", "logit_bias", logit_bias={"99999999": 1}),
    chat("logit_bias for a token with blanks", "logit_bias", logit_bias={" 5": 1}),
    chat("logit_bias of 101", "logit_bias[...]", logit_bias={"5": 101}),
    chat("100,000 biases", "logit_bias", logit_bias={str(i): 1 for i in range(100_000)}),
    chat("logprobs as a number", "logprobs", logprobs=3),
    chat("top_logprobs without logprobs", "top_logprobs", top_logprobs=3),
    chat("1,000 top_logprobs", "top_logprobs", logprobs=True, top_logprobs=1000),
    chat("min_tokens above max_tokens", "min_tokens", min_tokens=4),
    chat("stream as text", "stream", stream="yes"),
    chat("stream_options without stream", "stream_options", stream_options={"include_usage": True}),
    chat(
        "an unknown stream option",
        "stream_options.usage",
        stream=True,
        stream_options={"usage": True},
    ),
    chat("an unknown field", "temprature", temprature=1),
    chat("an unknown field with a hostile name", "a?b", **{"a\nb": 1}),
    chat("a cache salt of 10,000 characters", "cache_salt", cache_salt="x" * 10_000),
    chat(
        "both template flags",
        "continue_final_message",
        continue_final_message=True,
        add_generation_prompt=True,
    ),
    chat(
        "tools",
        "tools",
        "unsupported_parameter",
        tools=[{"type": "function", "function": {"name": "f"}}],
    ),
    chat("a required tool", "tool_choice", "unsupported_parameter", tool_choice="required"),
    chat(
        "JSON mode",
        "response_format",
        "unsupported_parameter",
        response_format={"type": "json_object"},
    ),
    chat("a chat template", "chat_template", "unsupported_parameter", chat_template="{{ 1 }}"),
    chat("audio", "modalities", "unsupported_parameter", modalities=["text", "audio"]),
    chat(
        "a tool's answer",
        "messages[0].role",
        "unsupported_parameter",
        messages=[{"role": "tool", "content": "4", "tool_call_id": "1"}],
    ),
    text("an empty prompt list", "prompt", prompt=[]),
    text("an empty list of ids", "prompt", prompt=[[]]),
    text("a mixed prompt", "prompt[1]", prompt=["a", 5]),
    text("a foreign token id", "prompt", prompt=[10**6]),
    text("a negative token id", "prompt", prompt=[[-1]]),
    text("a prompt object", "prompt", prompt={"a": 1}),
    text("1,000 prompts", "prompt", prompt=["a"] * 1000),
    text("a suffix", "suffix", "unsupported_parameter", suffix="end"),
    text("best_of", "best_of", "unsupported_parameter", best_of=4),
    text("echo with logprobs", "echo", "unsupported_parameter", echo=True, logprobs=1),
    text("1,000 logprobs", "logprobs", logprobs=1000),
]

_HTTP = [
    http("an unknown route", b"GET /nope HTTP/1.1\r\nhost: x\r\n\r\n", 404, "not_found"),
    http(
        "a path that climbs", b"GET /v1/../etc/passwd HTTP/1.1\r\nhost: x\r\n\r\n", 404, "not_found"
    ),
    http(
        "GET where POST belongs",
        b"GET /v1/completions HTTP/1.1\r\nhost: x\r\n\r\n",
        405,
        "method_not_allowed",
    ),
    http("POST where GET belongs", request("/health", b"{}"), 405, "method_not_allowed"),
    http("an unknown method", b"BREW /health HTTP/1.1\r\nhost: x\r\n\r\n", 400, "malformed_http"),
    http("CONNECT", b"CONNECT x:80 HTTP/1.1\r\nhost: x\r\n\r\n", 404, "not_found"),
    http("no host", b"GET /health HTTP/1.1\r\n\r\n", 400, "malformed_http"),
    http("no HTTP", b"hello there\r\n\r\n", 400, "malformed_http"),
    http(
        "a TLS greeting",
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03\r\n\r\n",
        400,
        "malformed_http",
    ),
    http("HTTP/3.7", b"GET /health HTTP/3.7\r\nhost: x\r\n\r\n", 400, "malformed_http"),
    http(
        "a header with NUL",
        b"GET /health HTTP/1.1\r\nhost: x\r\na: b\x00c\r\n\r\n",
        400,
        "malformed_http",
    ),
    http(
        "a folded header",
        b"GET /health HTTP/1.1\r\nhost: x\r\n folded: y\r\n\r\n",
        400,
        "malformed_http",
    ),
    http(
        "a blank before the colon",
        b"GET /health HTTP/1.1\r\nhost : x\r\n\r\n",
        400,
        "malformed_http",
    ),
    http(
        "two lengths",
        b"POST /tokenize HTTP/1.1\r\nhost: x\r\ncontent-length: 2\r\ncontent-length: 3\r\n\r\n{}",
        400,
        "malformed_http",
    ),
    http(
        "a negative length",
        b"POST /tokenize HTTP/1.1\r\nhost: x\r\ncontent-length: -2\r\n\r\n{}",
        400,
        "malformed_http",
    ),
    http(
        "length and chunks",
        b"POST /tokenize HTTP/1.1\r\nhost: x\r\ncontent-length: 2\r\n"
        b"transfer-encoding: chunked\r\n\r\n{}",
        400,
        "malformed_http",
    ),
    http(
        "a broken chunk",
        request(CHAT, b"", "content-length:", "transfer-encoding: chunked").replace(
            b"content-length:\r\n", b""
        )
        + b"zz\r\n",
        400,
        "malformed_http",
    ),
    http(
        "a header line of 10 kB",
        b"GET /health HTTP/1.1\r\nhost: x\r\na: " + b"b" * 10_000 + b"\r\n\r\n",
        431,
        "header_too_large",
    ),
    http(
        "a path of 10 kB",
        b"GET /" + b"b" * 10_000 + b" HTTP/1.1\r\nhost: x\r\n\r\n",
        431,
        "header_too_large",
    ),
    http(
        "200 header lines",
        b"GET /health HTTP/1.1\r\nhost: x\r\n" + b"a: b\r\n" * 200 + b"\r\n",
        400,
        "malformed_http",
    ),
    http(
        "text/plain",
        request(CHAT, _BODY, "content-type: text/plain"),
        415,
        "unsupported_media_type",
    ),
    http(
        "a form",
        request(CHAT, b"a=b", "content-type: application/x-www-form-urlencoded"),
        415,
        "unsupported_media_type",
    ),
    http("no content type", request(CHAT, _BODY, "content-type:"), 415, "unsupported_media_type"),
    http("gzip", request(CHAT, b"\x1f\x8b", "content-encoding: gzip"), 415, "unsupported_encoding"),
    http(
        "no length",
        f"POST {CHAT} HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\n\r\n".encode(),
        411,
        "length_required",
    ),
    http(
        "an announced gigabyte",
        request(CHAT, b"", "content-length: 1073741824"),
        413,
        "payload_too_large",
    ),
    http(
        "an unknown expectation",
        request(CHAT, _BODY, "expect: a-miracle"),
        417,
        "expectation_failed",
    ),
    http("half a body", request(CHAT, _BODY)[:-9], 400, "incomplete_request", ends_input=True),
    http(
        "half a header",
        b"POST /tokenize HTTP/1.1\r\nhos",
        400,
        "incomplete_request",
        ends_input=True,
    ),
]

ROWS = [*_JSON, *_TYPES, *_HTTP]
