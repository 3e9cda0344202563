"""Plans for servers of other makes: flags by hardware, and what is refused before it is started."""

from dataclasses import replace
from typing import get_args

import pytest

from steelyard.backends.plans.devices import DEVICES, Hardware, find_hardware
from steelyard.backends.plans.fitness import refuse_unfit
from steelyard.backends.plans.plan import ModelFacts, ServerPlan
from steelyard.backends.sglang import sglang_command
from steelyard.backends.vllm import vllm_command, vllm_environment
from steelyard.contract.errors import SettingsError
from steelyard.settings import foreign

SMALL = ModelFacts("/models/small", "llama", 30, 9, 269_000_000)
FLASH = ModelFacts("/models/flash", "deepseek_v4", 43, 64, 159_609_485_896)
PRO = ModelFacts("/models/pro", "deepseek_v4", 61, 128, 864_705_000_000)
HOSTED = {
    "served_as": "model",
    "section": "vllm",
}


def plan(model: ModelFacts = SMALL, hardware: Hardware = "cpu", **more) -> ServerPlan:
    return ServerPlan(**HOSTED | {"model": model, "hardware": hardware} | more)


def value_of(command: list[str], flag: str) -> str:
    """The last one counts, as with any parser of arguments."""
    at = len(command) - 1 - command[::-1].index(flag)
    return command[at + 1]


def test_settings_and_plans_know_the_same_hardware() -> None:
    assert set(get_args(foreign.Hardware)) == {"auto", *get_args(Hardware)}
    assert {*DEVICES, "cpu", "other"} == set(get_args(Hardware))


@pytest.mark.parametrize(
    ("names", "hardware"),
    [
        ([], "cpu"),
        (["NVIDIA H200"], "h200"),
        (["NVIDIA H100 80GB HBM3"], "h100"),
        (["NVIDIA GB200"], "gb200"),
        (["NVIDIA B200"], "b200"),
        (["NVIDIA GB300"], "gb300"),
        (["NVIDIA A100-SXM4-80GB"], "a100"),
        (["NVIDIA RTX PRO 6000 Blackwell Server Edition"], "rtx_pro_6000"),
        (["NVIDIA GeForce RTX 4090"], "other"),
    ],
)
def test_hardware_is_read_off_the_drivers_names(names, hardware) -> None:
    assert find_hardware(names) == hardware


def test_vllm_on_a_cpu_is_told_cores_and_memory_by_variables() -> None:
    small = plan(kv_bytes=3 << 30, cores=(0, 1), max_running=16, context_tokens=2048)
    command = vllm_command(small, "/opt/vllm/bin/python", "/run/x.sock")
    assert command[:3] == ["/opt/vllm/bin/python", "-m", "vllm.entrypoints.openai.api_server"]
    assert value_of(command, "--uds") == "/run/x.sock"
    assert value_of(command, "--max-num-seqs") == "16"
    assert value_of(command, "--max-model-len") == "2048"
    assert "--gpu-memory-utilization" not in command
    variables = vllm_environment(small, ready_s=600)
    assert variables["VLLM_CPU_OMP_THREADS_BIND"] == "0,1"
    assert variables["VLLM_CPU_KVCACHE_SPACE"] == "3"


def test_each_rank_of_vllm_has_cores_of_its_own() -> None:
    wide = plan(replace(SMALL, attention_heads=8), tensor=2, cores=(0, 1, 2, 3))
    assert vllm_environment(wide, ready_s=1)["VLLM_CPU_OMP_THREADS_BIND"] == "0,1|2,3"


def test_vllm_keeps_to_what_requests_say_and_to_their_priorities() -> None:
    command = vllm_command(plan(), "python", "/run/x.sock")
    assert value_of(command, "--generation-config") == "vllm"
    assert value_of(command, "--scheduling-policy") == "priority"


DEEPSEEK_BASE = {
    "--kv-cache-dtype": "fp8",
    "--block-size": "256",
    "--tokenizer-mode": "deepseek_v4",
    "--tool-call-parser": "deepseek_v4",
    "--reasoning-parser": "deepseek_v4",
}


@pytest.mark.parametrize("hardware", ["h100", "h200", "b200", "gb300", "rtx_pro_6000"])
def test_deepseek_v4_has_its_base_flags_on_all_hardware(hardware: Hardware) -> None:
    command = vllm_command(plan(FLASH, hardware, tensor=4), "python", "/run/x.sock")
    for flag, value in DEEPSEEK_BASE.items():
        assert value_of(command, flag) == value
    assert "--enable-auto-tool-choice" in command
    assert value_of(command, "--tensor-parallel-size") == "4"


def test_deepseek_v4_has_its_blackwell_kernels_there_alone() -> None:
    on_b200 = vllm_command(plan(FLASH, "b200", tensor=2), "python", "s")
    assert "--attention_config.use_fp4_indexer_cache=True" in on_b200
    assert value_of(on_b200, "--moe-backend") == "deep_gemm_mega_moe"
    on_h200 = vllm_command(plan(FLASH, "h200", tensor=4), "python", "s")
    assert not any("fp4_indexer" in flag for flag in on_h200)
    on_rtx = vllm_command(plan(FLASH, "rtx_pro_6000", tensor=8), "python", "s")
    assert "--attention_config.use_fp4_indexer_cache=False" in on_rtx
    assert "--moe-backend" not in on_rtx


def test_pro_on_eight_h200_is_kept_within_their_memory() -> None:
    command = vllm_command(plan(PRO, "h200", tensor=8), "python", "s")
    assert value_of(command, "--max-num-seqs") == "16"
    assert value_of(command, "--max-model-len") == "200000"
    wished = vllm_command(plan(PRO, "h200", tensor=8, max_running=4), "python", "s")
    assert value_of(wished, "--max-num-seqs") == "4", "the deployment file counts for more"


def test_experts_are_spread_where_the_file_says_so() -> None:
    command = vllm_command(plan(FLASH, "h200", data=4, expert=True), "python", "s")
    assert value_of(command, "--data-parallel-size") == "4"
    assert "--enable-expert-parallel" in command


def test_sglang_has_its_own_words() -> None:
    flash = plan(FLASH, "h200", section="sglang", tensor=4, max_step_tokens=8192)
    command = sglang_command(flash, "/opt/s/bin/python", 1234)
    assert command[:3] == ["/opt/s/bin/python", "-m", "sglang.launch_server"]
    assert value_of(command, "--host") == "127.0.0.1"
    assert value_of(command, "--tp-size") == "4"
    assert value_of(command, "--reasoning-parser") == "deepseek-v4"
    assert value_of(command, "--tool-call-parser") == "deepseekv4"
    assert value_of(command, "--moe-runner-backend") == "marlin"
    assert value_of(command, "--chunked-prefill-size") == "8192"
    spread = sglang_command(plan(FLASH, "b200", data=4, expert=True), "python", 1)
    assert value_of(spread, "--tp-size") == value_of(spread, "--dp-size") == "4"
    assert "--enable-dp-attention" in spread
    assert value_of(spread, "--moe-runner-backend") == "flashinfer_mxfp4"


@pytest.mark.parametrize("flag", ["--port=1", "--model", "--uds", "--tensor_parallel_size"])
def test_flags_that_would_break_the_connection_are_refused(flag: str) -> None:
    with pytest.raises(SettingsError) as refusal:
        vllm_command(plan(more_flags=(flag,)), "python", "s")
    assert refusal.value.param == "vllm.flags"


def test_further_flags_come_last_so_that_they_count() -> None:
    command = vllm_command(plan(more_flags=("--dtype", "half")), "python", "s")
    assert value_of(command, "--dtype") == "half"


@pytest.mark.parametrize(
    ("impossible", "found", "param", "says"),
    [
        (plan(FLASH, "a100", tensor=8), 8, "vllm.hardware", "capability 9.0"),
        (plan(FLASH, "h200", tensor=4, dtype="float32"), 4, "weights.precision", "bf16 only"),
        (plan(FLASH, "h200", tensor=4, kv_dtype="bfloat16"), 4, "vllm.kv_dtype", "h200"),
        (plan(FLASH, "h200"), 1, "parallel.tensor", "exceed"),
        (plan(FLASH, "h100", tensor=2), 2, "parallel.tensor", "exceed"),
        (plan(PRO, "b200", tensor=4), 4, "parallel.tensor", "exceed"),
        (plan(FLASH, "h200", data=4), 4, "parallel.tensor", "exceed"),
        (plan(FLASH, "h200", tensor=4), 2, "parallel.tensor", "this machine has 2"),
        (plan(SMALL, "h200", tensor=2), 2, "parallel.tensor", "9 attention heads"),
        (plan(SMALL, "cpu", pipeline=2), None, "parallel.pipeline", "CPU"),
    ],
)
def test_what_cannot_work_is_refused_with_key_reason_and_fix(
    impossible: ServerPlan, found: int | None, param: str, says: str
) -> None:
    with pytest.raises(SettingsError) as refusal:
        refuse_unfit(impossible, devices_found=found)
    assert refusal.value.param == param
    assert says in refusal.value.message
    assert refusal.value.fix


@pytest.mark.parametrize(
    ("possible", "found"),
    [
        (plan(FLASH, "h200", tensor=4), 4),
        (plan(FLASH, "h100", tensor=4), 8),
        (plan(FLASH, "h200", data=4, expert=True), 4),
        (plan(FLASH, "gb300"), 1),
        (plan(PRO, "h200", tensor=8, memory_share=0.95), 8),
        (plan(PRO, "b200", data=8, expert=True), 8),
        (plan(SMALL, "cpu"), None),
        (plan(SMALL, "other"), 1),
    ],
)
def test_what_is_known_to_work_is_not_refused(possible: ServerPlan, found: int | None) -> None:
    refuse_unfit(possible, devices_found=found)
