"""SGLang's native API, played: `/generate` with its events, `/abort_request`, metrics.

The shapes are those of SGLang 0.5: with `--incremental-streaming-output` an event holds what is
new, without it everything so far; `meta_info` counts in both cases all tokens.
"""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

from aiohttp import web

METRICS = """\
# TYPE sglang:num_running_reqs gauge
sglang:num_running_reqs{engine_type="unified",model_name="letters",tp_rank="0"} 3.0
sglang:num_queue_reqs{engine_type="unified",model_name="letters",tp_rank="0"} 2.0
sglang:token_usage{engine_type="unified",model_name="letters",tp_rank="0"} 0.25
sglang:max_total_num_tokens{model_name="letters"} 4000.0
sglang:prompt_tokens_total{model_name="letters"} 70.0
sglang:generation_tokens_total{model_name="letters"} 50.0
sglang:cached_tokens_total{model_name="letters"} 20.0
sglang:num_requests_total{model_name="letters"} 9.0
process_start_time_seconds 1.7e+09
"""


@dataclass
class SglangStub:
    """What it plays, and what it was asked."""

    answer: str = "abc"
    finish: dict[str, Any] = field(default_factory=lambda: {"type": "length", "length": 3})
    is_incremental: bool = True
    delay_s: float = 0.0
    url: str = ""
    asked: list[dict[str, Any]] = field(default_factory=list)
    aborted: list[str] = field(default_factory=list)
    refuse_with: int = 0

    def events(self, body: dict[str, Any]) -> list[dict[str, Any]]:
        ids = list(self.answer.encode())
        prompt = len(body["input_ids"])
        events = []
        for count in range(1, len(ids) + 1):
            shown = ids[count - 1 : count] if self.is_incremental else ids[:count]
            meta: dict[str, Any] = {
                "id": body["rid"],
                "finish_reason": self.finish if count == len(ids) else None,
                "prompt_tokens": prompt,
                "completion_tokens": count,
                "cached_tokens": 1,
            }
            if body.get("return_logprob"):
                meta["output_token_logprobs"] = [[-0.5, i, None] for i in shown]
                meta["output_top_logprobs"] = [[[-0.5, i, None], [-2.0, 1, None]] for i in shown]
            events.append({"text": "", "output_ids": shown, "meta_info": meta})
        return events


@asynccontextmanager
async def sglang_stub(stub: SglangStub | None = None) -> AsyncIterator[SglangStub]:
    stub = stub or SglangStub()
    routes = web.RouteTableDef()

    @routes.post("/generate")
    async def generate(request: web.Request) -> web.StreamResponse:
        body = await request.json()
        if stub.refuse_with:
            text = {"error": {"message": "The input is longer than the model's context length"}}
            return web.json_response(text, status=stub.refuse_with)
        if not body.get("stream"):
            return web.json_response({"output_ids": [97], "meta_info": {"completion_tokens": 1}})
        stub.asked.append(body)
        response = web.StreamResponse(headers={"content-type": "text/event-stream"})
        await response.prepare(request)
        for event in stub.events(body):
            await response.write(f"data: {json.dumps(event)}\n\n".encode())
            await asyncio.sleep(stub.delay_s)
        await response.write(b"data: [DONE]\n\n")
        return response

    @routes.post("/abort_request")
    async def abort(request: web.Request) -> web.Response:
        stub.aborted.append((await request.json())["rid"])
        return web.Response()

    @routes.get("/health")
    async def health(request: web.Request) -> web.Response:
        return web.Response()

    @routes.get("/v1/models")
    async def models(request: web.Request) -> web.Response:
        return web.json_response({"data": [{"id": "letters", "max_model_len": 2048}]})

    @routes.get("/metrics")
    async def metrics(request: web.Request) -> web.Response:
        return web.Response(text=METRICS)

    app = web.Application()
    app.add_routes(routes)
    runner = web.AppRunner(app, shutdown_timeout=0.1, handler_cancellation=True)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    host, port = runner.addresses[0]
    stub.url = f"http://{host}:{port}"
    try:
        yield stub
    finally:
        await runner.cleanup()
