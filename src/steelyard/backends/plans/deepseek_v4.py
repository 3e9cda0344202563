"""DeepSeek-V4 on other servers: which devices have kernels for it, and what it must be told.

From the models' recipes and the servers' code as of vLLM 0.32 and SGLang 0.5.15. Attention is of a
kind of its own (one 512-wide vector per token is both key and value): kernels exist from Hopper on,
compute in bf16 alone, and keep the cache in FP8.
"""

from collections.abc import Iterator
from typing import Literal

from steelyard.backends.plans.devices import DEVICES
from steelyard.backends.plans.plan import ServerPlan
from steelyard.contract.errors import SettingsError

__all__ = ["ARCHITECTURE", "Size", "refusals", "size_of"]

ARCHITECTURE = "deepseek_v4"

Size = Literal["flash", "pro"]

_PRO_LAYERS = 61
_WORKS = "4 H100 or H200, 2 B200, or one device of 256 GB or more (Flash); 8 H200 or B200 (Pro)"


def size_of(plan: ServerPlan) -> Size:
    """By the number of layers."""
    return "pro" if plan.model.layers >= _PRO_LAYERS else "flash"


def refusals(plan: ServerPlan) -> Iterator[SettingsError]:
    """What cannot work, whatever the sizes."""
    device = DEVICES.get(plan.hardware)
    if device is not None and device.generation == "ampere":
        yield SettingsError(
            f"{plan.hardware} cannot run DeepSeek-V4: its attention and FP8 kernels need compute "
            "capability 9.0, which begins with Hopper",
            param=f"{plan.section}.hardware",
            fix=f"what works: {_WORKS}",
        )
    if plan.dtype == "float32":
        yield SettingsError(
            "DeepSeek-V4 is computed in bf16 only: no server has kernels for anything else",
            param="weights.precision",
            fix="use weights.precision: auto",
        )
    is_hopper = device is not None and device.generation == "hopper"
    if is_hopper and plan.kv_dtype not in ("auto", "fp8", "fp8_ds_mla"):
        yield SettingsError(
            f"{plan.kv_dtype} is no KV cache that DeepSeek-V4 has on {plan.hardware}",
            param=f"{plan.section}.kv_dtype",
            fix="use auto, which is fp8",
        )
