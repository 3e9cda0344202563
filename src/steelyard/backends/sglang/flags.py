"""From a plan to SGLang's command line.

The server listens on a port of this machine's own address: it knows no socket files.
"""

from collections.abc import Iterator

from steelyard.backends.plans import deepseek_v4
from steelyard.backends.plans.devices import DEVICES
from steelyard.backends.plans.plan import ServerPlan
from steelyard.contract.errors import SettingsError

__all__ = ["sglang_command"]

_OURS = (
    "--model-path",
    "--model",
    "--served-model-name",
    "--host",
    "--port",
    "--api-key",
    "--tp-size",
    "--tp",
    "--pp-size",
    "--pp",
    "--dp-size",
    "--dp",
)
"""What the deployment file says elsewhere, or what the connection depends on."""
_KV_DTYPES = {"fp8": "fp8_e4m3", "fp8_ds_mla": "fp8_e4m3"}
"""Its own words, where they are not those of the settings."""

_Flag = str | tuple[str, str]


def sglang_command(plan: ServerPlan, python: str, port: int) -> list[str]:
    """The program and its arguments. Raises `SettingsError` for flags that are not to be given."""
    for given in plan.more_flags:
        if (name := given.partition("=")[0].replace("_", "-")) in _OURS:
            raise SettingsError(
                f"{name} is not to be given: other keys say it",
                param="sglang.flags",
                fix="remove it; see `model`, `served_name` and `parallel`",
            )
    command = [python, "-m", "sglang.launch_server"]
    command += ["--model-path", plan.model.path, "--served-model-name", plan.served_as]
    command += ["--host", "127.0.0.1", "--port", str(port)]
    for flag in (*_family(plan), *_parallel(plan), *_limits(plan), *_memory(plan)):
        command += [flag] if isinstance(flag, str) else list(flag)
    return [*command, *plan.more_flags]


def _parallel(plan: ServerPlan) -> Iterator[_Flag]:
    # Its tensor size counts all devices among which attention or experts are divided.
    spread = plan.tensor * plan.data if plan.expert else plan.tensor
    for flag, value in (
        ("--tp-size", spread),
        ("--pp-size", plan.pipeline),
        ("--dp-size", plan.data),
        ("--ep-size", spread if plan.expert else 1),
    ):
        if value > 1:
            yield flag, str(value)
    if plan.expert and plan.data > 1:
        yield "--enable-dp-attention"


def _limits(plan: ServerPlan) -> Iterator[_Flag]:
    for flag, value in (
        ("--context-length", plan.context_tokens),
        ("--max-running-requests", plan.max_running),
        ("--chunked-prefill-size", plan.max_step_tokens),
        ("--page-size", plan.block_tokens),
    ):
        if value is not None:
            yield flag, str(value)
    yield "--enable-metrics"
    yield "--enable-priority-scheduling"
    yield "--schedule-low-priority-values-first"
    # Events carry what is new, not all there is: a long answer is not sent over and over.
    yield "--incremental-streaming-output"
    if plan.eager:
        yield "--disable-cuda-graph"
    if plan.runs_model_code:
        yield "--trust-remote-code"


def _memory(plan: ServerPlan) -> Iterator[_Flag]:
    yield "--dtype", plan.dtype
    if plan.kv_dtype != "auto":
        yield "--kv-cache-dtype", _KV_DTYPES.get(plan.kv_dtype, plan.kv_dtype)
    if not plan.prefix_cache:
        yield "--disable-radix-cache"
    if plan.hardware == "cpu":
        yield "--device", "cpu"
    else:
        yield "--mem-fraction-static", f"{plan.memory_share:g}"


def _family(plan: ServerPlan) -> Iterator[_Flag]:
    """First, so that what the deployment file says counts for more."""
    if plan.model.architecture != deepseek_v4.ARCHITECTURE:
        return
    yield "--reasoning-parser", "deepseek-v4"
    yield "--tool-call-parser", "deepseekv4"
    yield "--swa-full-tokens-ratio", "0.1"
    yield "--chunked-prefill-size", "4096"
    device = DEVICES.get(plan.hardware)
    if device is not None and device.generation in ("hopper", "blackwell"):
        kernels = "marlin" if device.generation == "hopper" else "flashinfer_mxfp4"
        yield "--moe-runner-backend", kernels
