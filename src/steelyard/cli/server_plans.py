"""From the deployment file to what one server of another make is to be, and where it computes.

Facts of the machine are looked up here (`find_gpus`, cores); what cannot work is refused by
`backends.plans.fitness`.
"""

import os
from collections.abc import Sequence

from steelyard.backends.plans.devices import Hardware, find_hardware
from steelyard.backends.plans.fitness import refuse_unfit
from steelyard.backends.plans.plan import DType, ModelFacts, ServerPlan
from steelyard.checkpoints import Checkpoint
from steelyard.contract.errors import SettingsError
from steelyard.engine.threads import resolve_threads
from steelyard.settings import Deployment, Resolved
from steelyard.settings.foreign import ServerSettings
from steelyard.settings.layers import SourceKind
from steelyard.settings.paths import expanded
from steelyard.telemetry import find_gpus

__all__ = ["device_environment", "server_plan"]

_DTYPES: dict[str, DType] = {"auto": "auto", "bf16": "bfloat16", "fp32": "float32"}


def server_plan(
    resolved: Resolved, section: ServerSettings, checkpoint: Checkpoint, ordinal: int
) -> ServerPlan:
    """Of replica number `ordinal`. Raises `SettingsError` for what cannot work."""
    deployment = resolved.deployment
    devices = [gpu.name for gpu in find_gpus().sample()]
    hardware = _hardware(deployment, section, devices)
    batching, kv_cache, parallel = deployment.batching, deployment.kv_cache, deployment.parallel
    plan = ServerPlan(
        section=deployment.backend,
        model=_model(deployment, section, checkpoint),
        served_as=deployment.served_as,
        hardware=hardware,
        tensor=parallel.tensor,
        pipeline=parallel.pipeline,
        data=parallel.data,
        expert=parallel.expert,
        dtype=_DTYPES[deployment.weights.precision],
        kv_dtype=section.kv_dtype,
        kv_bytes=_said(kv_cache.memory),
        memory_share=section.memory_share,
        block_tokens=_unless_default(resolved, "kv_cache.block_tokens", kv_cache.block_tokens),
        context_tokens=_said(deployment.engine.context_tokens),
        max_running=_said(batching.max_running),
        max_step_tokens=_unless_default(
            resolved, "batching.max_step_tokens", batching.max_step_tokens
        ),
        prefix_cache=kv_cache.prefix_cache,
        eager=section.eager,
        runs_model_code=section.trust_remote_code,
        cores=_cores(deployment, ordinal) if hardware == "cpu" else (),
        more_flags=section.flags,
    )
    refuse_unfit(plan, devices_found=len(devices) or None)
    _require_devices(deployment, plan, len(devices))
    return plan


def device_environment(plan: ServerPlan, ordinal: int) -> dict[str, str]:
    """Which accelerators replica number `ordinal` sees: each has its own."""
    if plan.hardware == "cpu":
        return {}
    first = ordinal * plan.devices
    ids = ",".join(str(number) for number in range(first, first + plan.devices))
    name = "HIP_VISIBLE_DEVICES" if plan.hardware == "mi325x" else "CUDA_VISIBLE_DEVICES"
    return {name: ids}


def _hardware(deployment: Deployment, section: ServerSettings, devices: Sequence[str]) -> Hardware:
    if section.hardware != "auto":
        return section.hardware
    return "cpu" if deployment.engine.device == "cpu" else find_hardware(devices)


def _model(deployment: Deployment, section: ServerSettings, checkpoint: Checkpoint) -> ModelFacts:
    if section.model is None and checkpoint.format == "gguf":
        raise SettingsError(
            f"{checkpoint.path.name} is a GGUF file, which {deployment.backend} does not read",
            param=f"{deployment.backend}.model",
            fix="name a directory with the model's safetensors",
        )
    path = checkpoint.path if section.model is None else expanded(section.model)
    return ModelFacts(
        path=str(path.absolute()),
        architecture=checkpoint.architecture,
        layers=checkpoint.config.num_hidden_layers,
        attention_heads=checkpoint.config.num_attention_heads,
        weight_bytes=checkpoint.weight_bytes,
    )


def _cores(deployment: Deployment, ordinal: int) -> tuple[int, ...]:
    """CPUs of one replica: no two share any while there are enough for all."""
    usable = sorted(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else []
    asked = deployment.engine.threads
    threads = max(1, resolve_threads(0) // deployment.replica_count) if asked == "auto" else asked
    first = ordinal * threads
    wanted = [usable[number % len(usable)] for number in range(first, first + threads) if usable]
    return tuple(dict.fromkeys(wanted))


def _require_devices(deployment: Deployment, plan: ServerPlan, found: int) -> None:
    needed = plan.devices * deployment.replica_count
    if found and plan.hardware != "cpu" and needed > found:
        raise SettingsError(
            f"{deployment.replica_count} replicas of {plan.devices} devices each need {needed}, "
            f"but this machine has {found}",
            param="replicas",
            fix="lower replicas, or the sizes in parallel",
        )


def _said(value: int | str) -> int | None:
    """None for `auto`."""
    return None if isinstance(value, str) else value


def _unless_default(resolved: Resolved, key: str, value: int) -> int | None:
    """Defaults of our own engine are not those of others."""
    return None if resolved.provenance(key).kind is SourceKind.DEFAULT else value
