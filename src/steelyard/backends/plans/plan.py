"""One replica of a foreign server as it is meant to be: model, hardware, parallelism, limits."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from steelyard.backends.plans.devices import Hardware

__all__ = ["DType", "KVDType", "ModelFacts", "ServerPlan"]

DType = Literal["auto", "bfloat16", "float32"]
KVDType = Literal["auto", "bfloat16", "fp8", "fp8_e4m3", "fp8_e5m2", "fp8_ds_mla"]


@dataclass(frozen=True, slots=True)
class ModelFacts:
    """What matters of a checkpoint."""

    path: str
    """What the server loads."""
    architecture: str
    """`model_type` of its configuration."""
    layers: int
    attention_heads: int
    weight_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerPlan:
    """What one server process is to be."""

    section: str
    """Of the deployment file, for messages: `vllm` or `sglang`."""
    model: ModelFacts
    served_as: str
    hardware: Hardware
    tensor: int = 1
    pipeline: int = 1
    data: int = 1
    expert: bool = False
    dtype: DType = "auto"
    kv_dtype: KVDType = "auto"
    kv_bytes: int | None = None
    """None: the server decides, by `memory_share`."""
    memory_share: float = 0.9
    """Of a device's memory, for weights and KV cache together."""
    block_tokens: int | None = None
    context_tokens: int | None = None
    max_running: int | None = None
    max_step_tokens: int | None = None
    """None, here and above: the server's own default."""
    prefix_cache: bool = True
    eager: bool = False
    runs_model_code: bool = False
    """Programs that come with the model are run."""
    cores: Sequence[int] = ()
    """CPUs to compute on, where it computes on a CPU; empty: the server decides."""
    more_flags: Sequence[str] = ()
    """The operator's own; last, so that they count."""

    @property
    def devices(self) -> int:
        """How many it takes."""
        return self.tensor * self.pipeline * self.data
