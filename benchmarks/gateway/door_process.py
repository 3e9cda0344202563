"""The door under measurement: the whole gateway before an engine that only ticks.

    python benchmarks/gateway/door_process.py STEP_SECONDS [PROFILE_FILE]

Prints its port. Started by `cpu_cost.py`.
"""

import asyncio
import cProfile
import os
import sys
from collections.abc import AsyncGenerator, Sequence

import uvloop

from steelyard.contract import EngineInfo, EngineStatus, GenerateRequest, TokenChunk, Usage
from steelyard.gateway.app import build_gateway, serve
from steelyard.gateway.config import GatewayConfig
from steelyard.gateway.models import ServedModel

VOCABULARY = [f" word{i}" for i in range(4096)]


class TickingEngine:
    """Every `step_s`, all running streams get a token; with 0 they get them as fast as asked."""

    def __init__(self, step_s: float) -> None:
        self._step_s = step_s
        self._waiting: list[asyncio.Future[None]] = []
        self.info = EngineInfo(
            model="bench", context_tokens=8192, vocab_size=4096, end_token_ids=(), epoch="bench"
        )

    def start(self) -> None:
        if self._step_s > 0:
            asyncio.get_running_loop().call_later(self._step_s, self._tick)

    async def generate(self, request: GenerateRequest) -> AsyncGenerator[TokenChunk, None]:
        loop = asyncio.get_running_loop()
        total = request.sampling.max_tokens
        for index in range(total):
            if self._step_s > 0 or index == 0:
                turn = loop.create_future()
                if self._step_s > 0:
                    self._waiting.append(turn)
                else:
                    loop.call_soon(_resolve, turn)
                await turn
            token = (index * 7 % 4096,)
            if index + 1 < total:
                yield TokenChunk(request.request_id, index, token)
            else:
                usage = Usage(len(request.prompt_ids), total, 0)
                yield TokenChunk(request.request_id, index, token, None, "length", None, usage)

    async def abort(self, request_id: str) -> None:
        return None

    async def status(self) -> EngineStatus:
        return EngineStatus(state="ready")

    async def warm(self, prompts: Sequence[Sequence[int]]) -> None:
        return None

    async def drain(self) -> None:
        return None

    async def close(self) -> None:
        return None

    def _tick(self) -> None:
        waiting, self._waiting = self._waiting, []
        for turn in waiting:
            _resolve(turn)
        asyncio.get_running_loop().call_later(self._step_s, self._tick)


def _resolve(turn: asyncio.Future[None]) -> None:
    if not turn.done():  # its request was given up
        turn.set_result(None)


class WordStream:
    """Detokenises by looking up."""

    def push(self, token_ids: Sequence[int]) -> str:
        return "".join([VOCABULARY[i] for i in token_ids])

    def flush(self) -> str:
        return ""


class WordText:
    """A text model that costs next to nothing."""

    def encode(self, text: str, *, add_special_tokens: bool = True) -> list[int]:
        return list(text.encode()[:64])

    def encode_chat(self, messages: object, **flags: bool) -> list[int]:
        return [1] * 48

    def decode(self, token_ids: Sequence[int]) -> str:
        return WordStream().push(token_ids)

    def stream(self, *, skip_special_tokens: bool = True) -> WordStream:
        return WordStream()

    def token_text(self, token_id: int) -> str:
        return VOCABULARY[token_id]

    def token_bytes(self, token_id: int) -> bytes:
        return VOCABULARY[token_id].encode()


async def main(step_s: float) -> None:
    engine = TickingEngine(step_s)
    engine.start()
    config = GatewayConfig(port=0, max_in_flight=1024, shutdown_grace_s=0.0)
    gateway = build_gateway(config, [ServedModel("bench", engine, WordText(), 0)])
    await serve(gateway, lambda host, port: print(port, flush=True))


if __name__ == "__main__":
    os.sched_setaffinity(0, {sorted(os.sched_getaffinity(0) | {0})[0]})
    profile_file = sys.argv[2] if len(sys.argv) > 2 else ""
    if profile_file:
        profile = cProfile.Profile()
        profile.runcall(uvloop.run, main(float(sys.argv[1])))
        profile.dump_stats(profile_file)
    else:
        uvloop.run(main(float(sys.argv[1])))
