"""Steelyard as its users write it: type-checked, and run, by `test_user_code`.

A wrong line carries a `type: ignore` with the expected code; strict mypy complains about one that
is not needed, so these lines prove that mistakes are caught.
"""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Sequence
from pathlib import Path
from typing import assert_type

from steelyard.backends.embedded import EmbeddedEngine
from steelyard.backends.fake import FakeEngine, FakeEngineConfig
from steelyard.checkpoints import Checkpoint, ModelStore, open_checkpoint
from steelyard.contract import (
    Clock,
    Engine,
    EngineStatus,
    GenerateRequest,
    RealClock,
    SamplingParams,
    TokenChunk,
    VirtualClock,
)
from steelyard.contract.errors import RetryLater, SteelyardError, from_info, to_info
from steelyard.engine.config import EngineConfig
from steelyard.fleet.process import LocalLauncher, engine_command
from steelyard.fleet.replica import Replica, ReplicaStatus
from steelyard.gateway import Gateway, GatewayConfig, ServedModel, build_gateway
from steelyard.scheduling.config import GroupKind, KVGroup, SchedulerConfig
from steelyard.scheduling.scheduler import Scheduler
from steelyard.scheduling.step_plan import StepPlan, StepResult
from steelyard.settings import Deployment, Resolved, resolve
from steelyard.telemetry import Metrics
from steelyard.text import TextModel, open_text_model

CLOCKS: Sequence[Clock] = (RealClock(), VirtualClock())
ENGINES: Callable[[str], Engine] = EmbeddedEngine
FAKES: Callable[[FakeEngineConfig], Engine] = FakeEngine


async def stream(engine: Engine) -> str:
    """Tokens in, tokens out."""
    request = GenerateRequest(
        request_id="one",
        prompt_ids=(1, 2, 3),
        sampling=SamplingParams(max_tokens=4, temperature=0.0),
    )
    token_ids: list[int] = []
    chunks = engine.generate(request)
    assert_type(chunks, AsyncIterator[TokenChunk])
    async for chunk in chunks:
        assert_type(chunk.token_ids, tuple[int, ...])
        token_ids += chunk.token_ids
    assert_type(await engine.status(), EngineStatus)
    assert len(token_ids) == 4
    await engine.close()
    return " ".join(map(str, token_ids))


def settings() -> Deployment:
    """Layers, with provenance."""
    resolved = resolve(sets=["gateway.port=9000"], environ={})
    assert_type(resolved, Resolved)
    assert_type(resolved.deployment.gateway.port, int)
    assert_type(resolved.cache_dir, Path)
    return resolved.deployment


def one_step(request: GenerateRequest) -> StepPlan:
    """Decisions without an engine."""
    group = KVGroup("full", GroupKind.FULL, block_tokens=16, blocks=8)
    scheduler = Scheduler(SchedulerConfig(context_tokens=64), [group], end_token_ids=[0])
    scheduler.submit(request, now_s=0.0)
    plan = scheduler.plan(now_s=0.0)
    scheduler.apply(plan, StepResult([5], [None], elapsed_s=0.01), now_s=0.01)
    return plan


def door(engine: Engine, text: TextModel) -> Gateway:
    """A gateway of one's own."""
    model = ServedModel(name="mine", engine=engine, text=text, created=0)
    return build_gateway(GatewayConfig(port=0), [model], Metrics(models=["mine"]))


def model_of(store: ModelStore, name: str) -> tuple[Checkpoint, TextModel]:
    """A model on disk."""
    checkpoint = open_checkpoint(store.pull(name))
    return checkpoint, open_text_model(checkpoint)


def kept_alive(config: EngineConfig, watch: Callable[[ReplicaStatus], None]) -> Replica:
    """An engine process and who keeps it up."""
    launcher = LocalLauncher("mine", engine_command(config))
    engine = EmbeddedEngine(config.listen)
    return Replica("mine", launcher=launcher, engine=engine, on_change=watch)


def delay_s(error: SteelyardError) -> float:
    """Errors say what the caller may do."""
    again = from_info(to_info(error))
    return again.delay_s if isinstance(again, RetryLater) else 0.0


def wrong(engine: Engine) -> None:
    """Never called."""
    SamplingParams()  # type: ignore[call-arg]
    GenerateRequest(request_id=1, prompt_ids=(1,), sampling=SamplingParams(max_tokens=1))  # type: ignore[arg-type]
    KVGroup("full", "full", 16, 8)  # type: ignore[arg-type]
    resolve(sets={"gateway.port": 9000})  # type: ignore[arg-type]
    asyncio.run(engine.status)  # type: ignore[arg-type]
    with contextlib.suppress(SteelyardError):
        engine.generate("a prompt")  # type: ignore[arg-type]
