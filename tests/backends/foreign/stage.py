"""Servers of other makes, played by a few lines of aiohttp on a real socket."""

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

from aiohttp import web

from steelyard.backends.http.client import HttpClient
from steelyard.backends.http.config import HttpConfig
from steelyard.backends.http.engine import HttpEngine
from steelyard.backends.remote import RemoteConfig, RemoteDialect
from steelyard.contract import GenerateRequest, SamplingParams, TokenChunk

VOCAB_SIZE = 300
END_ID = 256

Play = Callable[["Stage", web.Request, dict[str, Any]], Awaitable[web.StreamResponse]]
"""How a stage answers a request for a stream."""


class Letters:
    """A tokenizer of bytes, in the shape that text mode needs."""

    def encode(self, text: str, *, add_special_tokens: bool = True) -> list[int]:
        return list(text.encode())

    def decode(self, token_ids, *, skip_special_tokens: bool = True) -> str:
        return bytes(i for i in token_ids if i < 256).decode(errors="replace")


@dataclass
class Stage:
    """A server and what it was asked."""

    url: str = ""
    asked: list[dict[str, Any]] = field(default_factory=list)
    """Bodies of requests for streams, in the order of their arrival."""
    paths: list[str] = field(default_factory=list)
    headers: list[dict[str, str]] = field(default_factory=list)
    hung_up: int = 0
    """Streams whose clients have gone."""
    is_well: bool = True


async def completing(stage: Stage, request: web.Request, body: dict[str, Any]) -> web.Response:
    """One token, as an answer to a probe."""
    takes_ids = isinstance(body["prompt"], list)
    choice: dict[str, Any] = {"index": 0, "text": "x", "finish_reason": "length"}
    if takes_ids and body.get("return_token_ids"):
        choice["token_ids"] = [ord("x")]
    if body.get("return_tokens_as_token_ids"):
        choice["logprobs"] = {"tokens": ["token_id:120"], "token_logprobs": [-0.5]}
    return web.json_response({"choices": [choice]})


def event(value: object) -> bytes:
    text = value if isinstance(value, str) else json.dumps(value)
    return f"data: {text}\n\n".encode()


def token(token_id: int, finish: str | None = None, **more: Any) -> bytes:
    """One token's event, in vLLM's shape."""
    choice = {"index": 0, "text": chr(token_id), "token_ids": [token_id], "finish_reason": finish}
    return event({"choices": [choice | more]})


def usage(prompt: int, completion: int, cached: int = 0) -> bytes:
    details = {"cached_tokens": cached}
    counts = {"prompt_tokens": prompt, "completion_tokens": completion}
    return event({"choices": [], "usage": counts | {"prompt_tokens_details": details}})


def sending(*pieces: bytes, then: Callable[[web.Request], None] | None = None) -> Play:
    """Send these bytes; `then` what becomes of the connection."""

    async def play(stage: Stage, request: web.Request, body: dict[str, Any]) -> web.StreamResponse:
        response = web.StreamResponse(headers={"content-type": "text/event-stream"})
        await response.prepare(request)
        for piece in pieces:
            await response.write(piece)
        if then is not None:
            then(request)
        return response

    return play


def breaking(request: web.Request) -> None:
    """Cut the connection in the middle."""
    assert request.transport is not None
    request.transport.abort()


async def endless(stage: Stage, request: web.Request, body: dict[str, Any]) -> web.StreamResponse:
    """A token every few milliseconds, until the client has gone."""
    response = web.StreamResponse(headers={"content-type": "text/event-stream"})
    await response.prepare(request)
    try:
        while True:
            await response.write(token(ord("a")))
            await asyncio.sleep(0.002)
    except (ConnectionError, asyncio.CancelledError):
        stage.hung_up += 1
        raise


def refusing(status: int, body: object = None, **headers: str) -> Play:
    async def play(stage: Stage, request: web.Request, asked: dict[str, Any]) -> web.Response:
        return web.json_response(body, status=status, headers=headers)

    return play


@asynccontextmanager
async def staged(
    play: Play, *, probe: Play = completing, model: str = "letters", **card: Any
) -> AsyncIterator[Stage]:
    """Serve until the block ends. `play` answers streams, `probe` everything else."""
    stage = Stage()

    async def complete(request: web.Request) -> web.StreamResponse:
        body = await request.json()
        stage.headers.append({name.lower(): value for name, value in request.headers.items()})
        if not body.get("stream"):
            return await probe(stage, request, body)
        stage.asked.append(body)
        return await play(stage, request, body)

    async def health(request: web.Request) -> web.Response:
        return web.Response(status=200 if stage.is_well else 503)

    async def models(request: web.Request) -> web.Response:
        return web.json_response({"data": [{"id": model, "max_model_len": 4096, **card}]})

    app = web.Application()
    app.router.add_post("/v1/completions", complete)
    app.router.add_get("/health", health)
    app.router.add_get("/v1/models", models)
    runner = web.AppRunner(app, shutdown_timeout=0.1, handler_cancellation=True)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    host, port = runner.addresses[0]
    stage.url = f"http://{host}:{port}"
    try:
        yield stage
    finally:
        await runner.cleanup()


def remote_engine(url: str, *, mode: str = "auto", model: str | None = None, **more: Any):
    """An engine on an endpoint; not connected yet. `more` is for its connection."""
    config = RemoteConfig(
        served_as="letters",
        model=model,
        mode=mode,
        context_tokens=8192,
        vocab_size=VOCAB_SIZE,
        end_token_ids=(END_ID,),
    )
    client = HttpClient(HttpConfig(url=url, **more))
    return HttpEngine(client, RemoteDialect(config, Letters()))


@asynccontextmanager
async def connected(url: str, **options: Any) -> AsyncIterator[HttpEngine]:
    engine = remote_engine(url, **options)
    await engine.connect(timeout_s=5)
    try:
        yield engine
    finally:
        await engine.close()


def ask(text: str = "Hi", *, emitted: str = "", **sampling: Any) -> GenerateRequest:
    """A request of three tokens."""
    params = SamplingParams(**{"max_tokens": 3, "temperature": 0.0} | sampling)
    return GenerateRequest(
        request_id=f"r-{text}-{emitted}",
        prompt_ids=tuple(text.encode()),
        emitted_ids=tuple(emitted.encode()),
        sampling=params,
    )


async def collect(engine: HttpEngine, request: GenerateRequest) -> list[TokenChunk]:
    return [chunk async for chunk in engine.generate(request)]


def text_of(chunks: list[TokenChunk]) -> str:
    return "".join(chr(i) for chunk in chunks for i in chunk.token_ids)
