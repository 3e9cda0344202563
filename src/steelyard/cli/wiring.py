"""Where concrete classes meet: from resolved settings to the parts of a running service.

Everything else receives protocols. Nothing is started here; `service` does that.
"""

import asyncio
import math
import os
import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from steelyard.backends.embedded import EmbeddedEngine
from steelyard.checkpoints import Checkpoint
from steelyard.cli.door import gateway_config
from steelyard.cli.fakes import make_fake_engine
from steelyard.cli.fleet_home import FleetHome
from steelyard.cli.foreign import (
    ForeignHire,
    cannot_outlive,
    is_foreign,
    make_foreign_replicas,
)
from steelyard.cli.loading import LoadedFiles
from steelyard.cli.replicas import make_replicas
from steelyard.contract import Engine, EngineInfo, EngineStatus, RealClock
from steelyard.contract.errors import EngineStarting, SettingsError, SteelyardError
from steelyard.engine.config import EngineConfig
from steelyard.fleet.config import RestartPolicy
from steelyard.fleet.process import LocalLauncher, engine_command
from steelyard.fleet.replica import Replica, ReplicaStatus
from steelyard.gateway.app import Gateway, build_gateway
from steelyard.gateway.models import ServedModel
from steelyard.gateway.workers.messages import EnginePost
from steelyard.settings import Deployment, Resolved
from steelyard.telemetry import HardwareSampler, Metrics, ProcessProbe, SampleFile, find_gpus
from steelyard.text.text_model import TextModel

__all__ = [
    "Keeper",
    "ServedEngine",
    "engine_config",
    "make_engine",
    "make_engines",
    "make_gateway",
    "make_metrics",
    "make_model",
    "make_sampler",
    "open_sample_file",
    "restart_policy",
]

_STOP_MARGIN_S = 10.0
"""Between the engine's own limit for finishing requests and the signal it cannot refuse."""

_SILENCE_MARGIN_S = 10.0
"""Between the engine's own limit for a step and taking it for mute."""

_NOTICE_S = 0.02


class Keeper(Protocol):
    """Keeps an engine up. `fleet.replica.Replica` is one."""

    def startup(self) -> None:
        """Want it up; returns at once."""
        ...

    async def wait_ready(self) -> None:
        """Return once it is ready; raise what keeps it from becoming so."""
        ...

    async def wait_broken(self) -> SteelyardError:
        """Return, with the reason, once it can never be ready again; maybe never."""
        ...

    async def shutdown(self) -> None:
        """Stop it, and return when it is gone."""
        ...

    def kill(self) -> None:
        """Stop it without waiting for anything."""
        ...


@dataclass(frozen=True, slots=True)
class ServedEngine:
    """An engine and who keeps it up."""

    engine: Engine
    keeper: Keeper
    pids: Callable[[], Mapping[str, int]]
    """Of its processes that are there now, by name; none when it has none of its own."""
    statuses: Callable[[], Awaitable[Mapping[str, EngineStatus]]] | None = None
    """Of its replicas, by name; None when it is a single engine."""
    posts: Callable[[], tuple[EnginePost, ...]] = tuple
    """Where other processes find its engines, as of now; none: it is in this process alone."""

    async def wait_ready(self) -> EngineInfo:
        """What is known of it once it is ready. Raises what keeps it from becoming so."""
        while True:
            await self.keeper.wait_ready()
            try:
                return self.engine.info
            except EngineStarting:  # it has just died, which its keeper will notice in a moment
                await asyncio.sleep(_NOTICE_S)


class InProcess:
    """The keeper of an engine that lives in this process and needs no keeping."""

    def __init__(self, close: Callable[[], Awaitable[None]]) -> None:
        self._close = close

    def startup(self) -> None:
        """It is up."""

    async def wait_ready(self) -> None:
        """It is ready."""

    async def wait_broken(self) -> SteelyardError:
        """Never: it breaks only together with us."""
        await asyncio.Event().wait()
        raise AssertionError("an event nobody sets")

    async def shutdown(self) -> None:
        await self._close()

    def kill(self) -> None:
        """Its end takes no time anyway."""


def make_engine(
    resolved: Resolved,
    files: LoadedFiles,
    *,
    runtime_dir: Path,
    tries: int,
    on_change: Callable[[ReplicaStatus], None],
) -> ServedEngine:
    """One engine of the deployment; `runtime_dir` is a private folder for its socket.

    After `tries` failed starts in a row, one that was never ready counts as broken.
    """
    if resolved.deployment.backend == "fake":
        return _fake_engine(resolved.deployment, files)
    if is_foreign(resolved.deployment):
        policy = restart_policy(resolved.deployment, tries)
        hand = ForeignHire(resolved, files, runtime_dir, policy, on_change).only()
        return ServedEngine(hand.engine, hand.replica, lambda: _pid_of(hand.replica))
    config = engine_config(resolved, files.checkpoint, f"unix:{runtime_dir / 'engine-0.sock'}")
    clock = RealClock()
    engine = EmbeddedEngine(config.listen, clock=clock)
    replica = Replica(
        "engine-0",
        launcher=LocalLauncher("engine-0", engine_command(config)),
        engine=engine,
        clock=clock,
        policy=restart_policy(resolved.deployment, tries),
        on_change=on_change,
    )
    engine.explain_absence = replica.absence
    post = EnginePost("engine-0", config.listen)
    return ServedEngine(engine, replica, lambda: _pid_of(replica), posts=lambda: (post,))


def make_engines(
    resolved: Resolved,
    files: LoadedFiles,
    metrics: Metrics,
    *,
    runtime_dir: Path,
    tries: int,
    on_change: Callable[[ReplicaStatus], None],
    home: FleetHome | None = None,
) -> ServedEngine:
    """The deployment's engine, or all its replicas as one; see `make_engine`.

    `home`: a supervisor keeps the replicas, and they live there instead of in `runtime_dir`.
    """
    deployment = resolved.deployment
    if deployment.replica_count == 1 and home is None:
        return make_engine(
            resolved, files, runtime_dir=runtime_dir, tries=tries, on_change=on_change
        )
    if is_foreign(deployment):
        if home is not None:
            raise cannot_outlive(deployment)
        policy = restart_policy(deployment, tries)
        hire = ForeignHire(resolved, files, runtime_dir, policy, on_change)
        together = make_foreign_replicas(hire, metrics)
        return ServedEngine(
            together.engine, together, lambda: together.crew.pids, together.statuses
        )
    replicas = make_replicas(
        deployment,
        lambda listen: engine_config(resolved, files.checkpoint, listen),
        metrics,
        folder=runtime_dir if home is None else home.run_folder,
        policy=restart_policy(deployment, tries),
        on_change=on_change,
        home=home,
    )
    crew = replicas.crew
    return ServedEngine(
        replicas.engine,
        replicas if home is None else home.supervise(replicas),
        lambda: crew.pids,
        replicas.statuses,
        lambda: replicas.engine_posts,
    )


def make_metrics(deployment: Deployment) -> Metrics:
    """What door and sampler count into."""
    return Metrics(clock=RealClock(), models=[deployment.served_as])


def make_gateway(
    resolved: Resolved, served: ServedEngine, text: TextModel, metrics: Metrics
) -> Gateway:
    """The door in front of one engine. Call inside a running loop."""
    model = make_model(resolved.deployment, served, text)
    return build_gateway(gateway_config(resolved.deployment), [model], metrics)


def make_model(deployment: Deployment, served: ServedEngine, text: TextModel) -> ServedModel:
    """What clients ask for by name."""
    return ServedModel(
        name=deployment.served_as,
        engine=served.engine,
        text=text,
        created=int(time.time()),
        statuses=served.statuses,
    )


def make_sampler(
    resolved: Resolved,
    served: ServedEngine,
    metrics: Metrics,
    workers: Callable[[], Mapping[str, int]],
) -> HardwareSampler:
    """Samples of host, devices and our processes; `workers` are those of the door, by name."""

    def pids() -> dict[str, int]:
        return {"gateway": os.getpid(), **workers(), **served.pids()}

    return HardwareSampler(
        clock=RealClock(),
        metrics=metrics,
        processes=ProcessProbe(pids),
        gpus=find_gpus(),
        every_s=resolved.deployment.telemetry.sample_s,
        file=open_sample_file(resolved.deployment),
    )


def open_sample_file(deployment: Deployment) -> SampleFile | None:
    """Where samples are written; None when nowhere. Raises `SettingsError` when they cannot be."""
    telemetry = deployment.telemetry
    if telemetry.sample_file is None:
        return None
    path = Path(telemetry.sample_file).expanduser()
    file = SampleFile(path, telemetry.sample_file_bytes)
    try:
        file.create()
    except OSError as error:
        raise SettingsError(
            f"{path} cannot be written: {error.strerror or error}",
            param="telemetry.sample_file",
            fix="name a file in a folder that this user can write to",
        ) from error
    return file


def engine_config(resolved: Resolved, checkpoint: Checkpoint, listen: str) -> EngineConfig:
    """What the engine process is told."""
    deployment = resolved.deployment
    engine, batching, kv_cache = deployment.engine, deployment.batching, deployment.kv_cache
    stretch = batching.step_stretch
    return EngineConfig(
        checkpoint=str(checkpoint.path),
        model=deployment.served_as,
        listen=listen,
        device=engine.device,
        threads=_number(engine.threads),
        precision=deployment.weights.precision,
        kernels=engine.kernels,
        kv_dtype=kv_cache.dtype,
        kv_bytes=_number(kv_cache.memory),
        block_tokens=kv_cache.block_tokens,
        context_tokens=_number(engine.context_tokens),
        max_running=batching.running_limit,
        max_waiting=batching.max_waiting,
        max_step_tokens=batching.max_step_tokens,
        min_batch=batching.min_batch,
        max_wait_s=batching.max_wait_ms / 1000,
        memory_threshold=batching.memory_threshold,
        step_stretch=math.inf if stretch is None else stretch,
        prefix_cache=kv_cache.prefix_cache,
        watchdog_s=engine.watchdog_s,
        drain_s=deployment.gateway.shutdown_grace_s,
        cache_dir=str(resolved.cache_dir),
    )


def restart_policy(deployment: Deployment, tries: int) -> RestartPolicy:
    """When an engine process is started again."""
    engine = deployment.engine
    return RestartPolicy(
        start_timeout_s=engine.start_timeout_s,
        silence_s=engine.watchdog_s + _SILENCE_MARGIN_S,
        stop_grace_s=deployment.gateway.shutdown_grace_s + _STOP_MARGIN_S,
        backoff_first_s=engine.restart.first_delay_s,
        backoff_cap_s=engine.restart.max_delay_s,
        give_up_after=tries,
    )


def _fake_engine(deployment: Deployment, files: LoadedFiles) -> ServedEngine:
    context_tokens = files.checkpoint.config.max_position_embeddings
    engine = make_fake_engine(deployment, context_tokens, files.text)
    return ServedEngine(engine, InProcess(engine.close), dict)


def _pid_of(replica: Replica) -> dict[str, int]:
    pid = replica.status.pid
    return {} if pid is None else {"engine-0": pid}


def _number(value: int | str) -> int:
    """`auto` is 0 on the way to the engine process, which decides."""
    return 0 if isinstance(value, str) else value
