"""Doors under test: the whole gateway on a real socket, in a thread with its own event loop."""

import asyncio
import threading
import time
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

import uvloop

from steelyard.backends.fake import FakeEngine, FakeEngineConfig
from steelyard.gateway.app import Gateway, build_gateway
from steelyard.gateway.config import GatewayConfig
from steelyard.gateway.models import ServedModel
from steelyard.gateway.ports import TextModel
from steelyard.telemetry.metrics import Metrics

from .byte_text import END_ID, VOCAB_SIZE, ByteText

__all__ = ["Door", "engine_config", "open_door"]

T = TypeVar("T")


def engine_config(**changes: Any) -> FakeEngineConfig:
    """An engine that answers in small letters."""
    defaults: dict[str, Any] = {
        "vocab_size": VOCAB_SIZE,
        "end_token_ids": (END_ID,),
        "token_ids": tuple(b"abcdefghijklmnopqrstuvwxyz"),
        "context_tokens": 4096,
    }
    return FakeEngineConfig(**defaults | changes)


class Door:
    """A running gateway and the fake engine behind it."""

    def __init__(self, gateway: Gateway, engine: FakeEngine, metrics: Metrics) -> None:
        self.gateway = gateway
        self.engine = engine
        self.metrics = metrics
        self.loop = asyncio.get_running_loop()
        self.host, self.port = gateway.address
        self.url = f"http://{self.host}:{self.port}"

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Run `work` in the door's loop."""
        return asyncio.run_coroutine_threadsafe(work, self.loop).result(10)

    def wait_for(self, claim: Callable[[], bool], timeout_s: float = 5.0) -> None:
        """Wait until `claim` holds."""
        end_s = time.monotonic() + timeout_s
        while not claim():
            assert time.monotonic() < end_s, "it never happened"
            time.sleep(0.002)

    def metric(self, line: str) -> float:
        """The value of one series, such as `name{label="x"}`."""

        async def read() -> str:
            return self.metrics.exposition()[0].decode()

        for row in self.run(read()).splitlines():
            if row.startswith(line + " "):
                return float(row.rpartition(" ")[2])
        return 0.0


@contextmanager
def open_door(
    config: GatewayConfig | None = None,
    engine: FakeEngineConfig | None = None,
    text: TextModel | None = None,
    names: tuple[str, ...] = ("fake",),
) -> Iterator[Door]:
    """Serve the models of these names, all by one engine, until the block ends."""
    started: list[Door] = []
    is_up = threading.Event()
    stop: list[asyncio.Event] = []

    async def serve() -> None:
        fake = FakeEngine(engine or engine_config())
        metrics = Metrics(models=names)
        gateway = build_gateway(
            config or GatewayConfig(port=0),
            [ServedModel(name, fake, text or ByteText(), 1_700_000_000) for name in names],
            metrics,
        )
        await gateway.startup()
        stop.append(asyncio.Event())
        started.append(Door(gateway, fake, metrics))
        is_up.set()
        await stop[0].wait()
        hurry = asyncio.Event()
        hurry.set()
        await gateway.shutdown(hurry)

    thread = threading.Thread(target=lambda: uvloop.run(serve()))
    thread.start()
    assert is_up.wait(10)
    try:
        yield started[0]
    finally:
        started[0].loop.call_soon_threadsafe(stop[0].set)
        thread.join(10)
        assert not thread.is_alive()
