"""From a plan to vLLM's command line and environment.

The server listens on a socket file in a private folder, so that nobody but us can ask it.
"""

from collections.abc import Iterator

from steelyard.backends.plans import deepseek_v4
from steelyard.backends.plans.devices import DEVICES
from steelyard.backends.plans.plan import ServerPlan
from steelyard.contract.errors import SettingsError

__all__ = ["vllm_command", "vllm_environment"]

_GIB = 1 << 30
_OURS = (
    "--model",
    "--served-model-name",
    "--uds",
    "--host",
    "--port",
    "--api-key",
    "--root-path",
    "--ssl-keyfile",
    "--ssl-certfile",
    "--tensor-parallel-size",
    "--pipeline-parallel-size",
    "--data-parallel-size",
)
"""What the deployment file says elsewhere, or what the connection depends on."""


def vllm_command(plan: ServerPlan, python: str, socket: str) -> list[str]:
    """The program and its arguments. Raises `SettingsError` for flags that are not to be given."""
    _refuse_ours(plan)
    # Not `vllm serve`: builds for CPUs have no such command.
    command = [python, "-m", "vllm.entrypoints.openai.api_server"]
    command += ["--model", plan.model.path, "--served-model-name", plan.served_as]
    command += ["--uds", socket]
    for flag in (*_family(plan), *_parallel(plan), *_limits(plan), *_memory(plan)):
        command += [flag] if isinstance(flag, str) else list(flag)
    return [*command, *plan.more_flags]


def vllm_environment(plan: ServerPlan, *, ready_s: float) -> dict[str, str]:
    """Variables that vLLM has no flags for; `ready_s`: how long loading may take."""
    variables = {
        "VLLM_NO_USAGE_STATS": "1",
        "VLLM_ENGINE_READY_TIMEOUT_S": str(int(ready_s)),
        "HF_HUB_OFFLINE": "1",
    }
    if plan.hardware == "cpu":
        if plan.cores:
            variables["VLLM_CPU_OMP_THREADS_BIND"] = _bind(plan)
        if plan.kv_bytes is not None:
            variables["VLLM_CPU_KVCACHE_SPACE"] = str(plan.kv_bytes // _GIB)
    return variables


_Flag = str | tuple[str, str]


def _parallel(plan: ServerPlan) -> Iterator[_Flag]:
    for flag, value in (
        ("--tensor-parallel-size", plan.tensor),
        ("--pipeline-parallel-size", plan.pipeline),
        ("--data-parallel-size", plan.data),
    ):
        if value > 1:
            yield flag, str(value)
    if plan.expert:
        yield "--enable-expert-parallel"


def _limits(plan: ServerPlan) -> Iterator[_Flag]:
    for flag, value in (
        ("--max-model-len", plan.context_tokens),
        ("--max-num-seqs", plan.max_running),
        ("--max-num-batched-tokens", plan.max_step_tokens),
    ):
        if value is not None:
            yield flag, str(value)
    yield "--scheduling-policy", "priority"
    # The model's own sampling defaults must not count: every request says how it is sampled.
    yield "--generation-config", "vllm"
    yield "--disable-uvicorn-access-log"  # the door has a log of its own
    if plan.eager:
        yield "--enforce-eager"
    if plan.runs_model_code:
        yield "--trust-remote-code"


def _memory(plan: ServerPlan) -> Iterator[_Flag]:
    yield "--dtype", plan.dtype
    if plan.kv_dtype != "auto":
        yield "--kv-cache-dtype", plan.kv_dtype
    if plan.block_tokens is not None:
        yield "--block-size", str(plan.block_tokens)
    yield "--enable-prefix-caching" if plan.prefix_cache else "--no-enable-prefix-caching"
    yield "--enable-prompt-tokens-details"  # tells how much of a prompt was cached
    if plan.hardware != "cpu":
        yield "--gpu-memory-utilization", f"{plan.memory_share:g}"
        if plan.kv_bytes is not None:
            yield "--kv-cache-memory-bytes", str(plan.kv_bytes)


def _family(plan: ServerPlan) -> Iterator[_Flag]:
    """First, so that what the deployment file says counts for more."""
    if plan.model.architecture == deepseek_v4.ARCHITECTURE:
        yield from _deepseek_v4(plan)


def _deepseek_v4(plan: ServerPlan) -> Iterator[_Flag]:
    yield "--kv-cache-dtype", "fp8"
    yield "--block-size", "256"
    yield "--tokenizer-mode", "deepseek_v4"
    yield "--tool-call-parser", "deepseek_v4"
    yield "--enable-auto-tool-choice"
    yield "--reasoning-parser", "deepseek_v4"
    device = DEVICES.get(plan.hardware)
    if plan.hardware == "rtx_pro_6000":
        yield "--attention_config.use_fp4_indexer_cache=False"
    elif device is not None and device.generation == "blackwell":
        yield "--attention_config.use_fp4_indexer_cache=True"
        yield "--moe-backend", "deep_gemm_mega_moe"
        yield (
            "--compilation-config",
            '{"cudagraph_mode":"FULL_AND_PIECEWISE","custom_ops":["all"]}',
        )
    elif plan.hardware == "h200" and deepseek_v4.size_of(plan) == "pro":
        # Eight of them hold the weights with little to spare.
        yield "--max-model-len", "200000"
        yield "--max-num-seqs", "16"
        yield "--no-enable-flashinfer-autotune"
        yield "--compilation-config", '{"mode":0,"cudagraph_mode":"FULL_DECODE_ONLY"}'


def _bind(plan: ServerPlan) -> str:
    """Cores of each rank, in vLLM's words: `0,1|2,3`."""
    each = max(1, len(plan.cores) // plan.tensor)
    ranks = [plan.cores[rank * each : (rank + 1) * each] for rank in range(plan.tensor)]
    return "|".join(",".join(str(core) for core in cores) for cores in ranks)


def _refuse_ours(plan: ServerPlan) -> None:
    for flag in plan.more_flags:
        name = flag.partition("=")[0].replace("_", "-")
        if name in _OURS:
            raise SettingsError(
                f"{name} is not to be given: other keys say it",
                param="vllm.flags",
                fix="remove it; see `model`, `served_name` and `parallel`",
            )
