"""One of several processes that serve the door: `python -m steelyard.cli.worker`.

    standard input    a `WorkerOrder` as one JSON document, then end of file
    standard output   one `ErrorInfo` as a JSON line, when it ends because something cannot work
    standard error    log lines
    exit status       `engine.exit_codes.ExitCode`

It listens on the port that all workers share, and on a socket of its own for the process that
keeps it (`worker_doors`). When that connection breaks the keeper is gone, and so goes the worker.
"""

import asyncio
import logging
import os
import sys
from dataclasses import replace
from pathlib import Path

import msgspec

from steelyard.checkpoints import open_checkpoint
from steelyard.cli.door import gateway_config
from steelyard.cli.engine_posts import EnginePosts
from steelyard.cli.fakes import make_fake_engine
from steelyard.cli.replicas import failover_config
from steelyard.contract import Engine
from steelyard.contract.errors import (
    InternalError,
    SettingsError,
    SteelyardError,
    to_info,
)
from steelyard.engine.exit_codes import ExitCode
from steelyard.gateway.app import Change, Gateway, build_gateway
from steelyard.gateway.config import GatewayConfig
from steelyard.gateway.models import ServedModel
from steelyard.gateway.stop_signals import StopSignals
from steelyard.gateway.workers import Channel, RemotePage
from steelyard.gateway.workers.messages import (
    Adopt,
    Done,
    EnginePost,
    Hello,
    Message,
    Prepare,
    Roster,
    SettleEngines,
    Snapshot,
    TakeMetrics,
)
from steelyard.settings import Deployment
from steelyard.telemetry import Metrics
from steelyard.text.text_model import open_text_model

__all__ = ["WorkerOrder", "main", "worker_config"]

_log = logging.getLogger("steelyard.cli.worker")

_KEEPER_S = 30.0
"""A keeper that does not come within this time after the start is not coming."""


class WorkerOrder(msgspec.Struct, frozen=True, kw_only=True):
    """What a worker is told at its start."""

    control: str
    """Path of the socket on which its keeper will ask."""
    deployment: bytes
    """`settings.Deployment` as JSON."""
    checkpoint: str
    """Folder or file whose text model is used."""
    port: int
    """The shared one, already chosen."""
    created: int
    """What `/v1/models` reports."""
    cache_secret: bytes
    """One for all workers, so that they share cached prefixes."""
    posts: tuple[EnginePost, ...]
    """Engines to connect to; none: one of its own that makes tokens up."""


def main() -> ExitCode:
    """Serve from start to end."""
    report = os.dup(sys.stdout.fileno())
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())
    logging.basicConfig(
        level=logging.INFO, stream=sys.stderr, format="%(levelname)s %(name)s: %(message)s"
    )
    try:
        order = msgspec.json.decode(sys.stdin.buffer.read(), type=WorkerOrder)
        _run(order)
    except SteelyardError as error:
        os.write(report, msgspec.json.encode(to_info(error)) + b"\n")
        return ExitCode.BAD_CONFIG if isinstance(error, SettingsError) else ExitCode.CRASHED
    except Exception:  # noqa: BLE001 (the process's edge: it ends, the keeper starts another)
        _log.critical("the worker dies", exc_info=True)
        return ExitCode.CRASHED
    return ExitCode.ENDED


def worker_config(
    deployment: Deployment, port: int, cache_secret: bytes | None = None
) -> GatewayConfig:
    """As `gateway_config`, of one of several processes on `port`."""
    config = gateway_config(deployment)
    share = config.max_in_flight // deployment.gateway.workers
    return replace(
        config,
        port=port,
        reuse_port=True,
        # Each may fill the engine alone, since connections need not spread evenly.
        max_in_flight=max(share, deployment.batching.running_limit),
        cache_secret=cache_secret or config.cache_secret,
    )


def _run(order: WorkerOrder) -> None:
    try:
        import uvloop
    except ImportError:
        asyncio.run(_serve(order))
    else:
        uvloop.run(_serve(order))


async def _serve(order: WorkerOrder) -> None:
    worker = _Worker(order)
    with StopSignals() as signals:
        try:
            await worker.startup()
            await worker.until_over(signals.first)
        finally:
            await worker.shutdown(signals.second)


class _Worker:
    """A gateway, its connections to engines, and its keeper's questions."""

    def __init__(self, order: WorkerOrder) -> None:
        self._order = order
        self._deployment = Deployment.model_validate_json(order.deployment)
        checkpoint = open_checkpoint(Path(order.checkpoint))
        text = open_text_model(checkpoint)
        name = self._deployment.served_as
        self._metrics = Metrics(models=[name])
        self._posts: EnginePosts | None = None
        engine: Engine
        if order.posts:
            self._posts = EnginePosts(
                order.posts, failover_config(self._deployment), self._metrics.failover
            )
            engine = self._posts.engine
        else:
            assert self._deployment.backend == "fake", "other engines are reached over sockets"
            context_tokens = checkpoint.config.max_position_embeddings
            engine = make_fake_engine(self._deployment, context_tokens, text)
        self._gateway: Gateway = build_gateway(
            worker_config(self._deployment, order.port, order.cache_secret),
            [ServedModel(name, engine, text, order.created)],
            self._metrics,
            page=RemotePage(self._ask_keeper),
        )
        self._keeper: Channel | None = None
        self._keeper_came = asyncio.Event()
        self._control: asyncio.Server | None = None
        self._change: Change | None = None

    async def startup(self) -> None:
        """Open the door, then the socket that says so."""
        if self._posts is not None:
            self._posts.startup()
        await self._gateway.startup()
        path = Path(self._order.control)
        path.unlink(missing_ok=True)  # of a predecessor; the folder is ours alone
        loop = asyncio.get_running_loop()
        self._control = await loop.create_unix_server(self._meet_keeper, str(path))

    async def until_over(self, stop: asyncio.Event) -> None:
        """Return when a signal came or the keeper is gone."""
        stopping = asyncio.ensure_future(stop.wait())
        try:
            async with asyncio.timeout(_KEEPER_S):
                await self._keeper_came.wait()
            while not stop.is_set() and self._keeper is not None:
                await asyncio.wait(
                    (stopping, self._keeper.lost), return_when=asyncio.FIRST_COMPLETED
                )
                if self._keeper.lost.done():
                    return
        except TimeoutError:
            _log.error("nobody has asked for this worker")
        finally:
            stopping.cancel()

    async def shutdown(self, hurry: asyncio.Event) -> None:
        """Let running requests finish, unless there is nobody left who could use them."""
        if self._keeper is None or self._keeper.lost.done():
            hurry.set()
        await self._gateway.shutdown(hurry)
        if self._posts is not None:
            await self._posts.shutdown()
        if self._control is not None:
            self._control.close()

    def _meet_keeper(self) -> Channel:
        self._keeper = Channel(self._answer)
        self._keeper_came.set()
        return self._keeper

    async def _ask_keeper(self, question: Message, timeout_s: float) -> Message:
        assert self._keeper is not None, "clients come after the keeper"
        return await self._keeper.ask(question, timeout_s=timeout_s)

    async def _answer(self, question: Message) -> Message:
        match question:
            case Hello():
                return Done()
            case Prepare(deployment):
                await self._prepare(Deployment.model_validate_json(deployment))
                return Done()
            case Adopt():
                await self._adopt()
                return Done()
            case Roster(posts):
                if self._posts is not None:
                    self._posts.follow(posts)
                return Done()
            case SettleEngines():
                if self._posts is not None:
                    await self._posts.settle()
                return Done()
            case TakeMetrics():
                return Snapshot(self._metrics.snapshot(), **self._gateway.load)
            case _:
                raise InternalError(f"a worker cannot answer {type(question).__name__}")

    async def _prepare(self, deployment: Deployment) -> None:
        self._change = None
        config = worker_config(deployment, self._order.port, self._order.cache_secret)
        self._change = await self._gateway.prepare(config)

    async def _adopt(self) -> None:
        change, self._change = self._change, None
        if change is None:
            raise InternalError("nothing was prepared")
        await self._gateway.adopt(change)


if __name__ == "__main__":
    status = main()
    logging.shutdown()
    sys.exit(status)
