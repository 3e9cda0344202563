"""The deployment file as one frozen tree of values.

Holds defaults, types and descriptions. Reading layers into it and saying where each value came
from is `resolve`'s business; what values must not be together is in `rules`.
"""

from pathlib import PurePath
from typing import Annotated, Literal

from pydantic import Field

from steelyard.settings._section import Section
from steelyard.settings.fleet import (
    FailoverSettings,
    GroupSettings,
    ReplicaCount,
    RoutingSettings,
    named_groups,
)
from steelyard.settings.foreign import (
    ParallelSettings,
    RemoteSettings,
    SglangSettings,
    VllmSettings,
)
from steelyard.settings.gateway import GatewaySettings
from steelyard.settings.sections import (
    BatchingSettings,
    EngineSettings,
    KVCacheSettings,
    TelemetrySettings,
    WeightsSettings,
)
from steelyard.settings.tenants import TenantsSettings

__all__ = ["Deployment"]

_Name = Annotated[str, Field(min_length=1, max_length=1024, pattern=r"^[^\x00-\x20\x7f]+$")]


class Deployment(Section):
    """One service: a model, the engine that runs it and the door in front."""

    model: Annotated[str, Field(min_length=1, max_length=4096)] = "smollm2-135m"
    """A name that `steelyard model list` shows, a directory, a `.gguf` file, or `org/name` of the
    Hugging Face hub."""
    served_name: _Name | None = None
    """The name clients ask for; `null` derives it from `model` (of a path, its last part)."""
    backend: Literal["embedded", "vllm", "sglang", "remote", "fake"] = "embedded"
    """`embedded` is our own engine; `vllm` and `sglang` are servers that are started instead of
    it; `remote` is an endpoint with the OpenAI API; `fake` answers at once with made-up tokens, for
    tests."""
    cache_dir: Annotated[str, Field(min_length=1)] | None = None
    """Where models and compiled kernels are kept; `null` is `$XDG_CACHE_HOME/steelyard`, or
    `~/.cache/steelyard`."""
    state_dir: Annotated[str, Field(min_length=1)] | None = None
    """Where `steelyard up` keeps sockets, logs and what it must know after a restart; `null` is
    `$XDG_DATA_HOME/steelyard/fleets/NAME`, or the same below `~/.local/share`."""
    replicas: ReplicaCount = 1
    """Engine processes that serve the model together, on this machine; `auto` threads are divided
    among them. `groups` can say more."""
    groups: dict[str, GroupSettings] = Field(default_factory=dict)
    """Replicas in groups, each with its number, its weight, or standing by for another one."""
    routing: RoutingSettings = RoutingSettings()
    failover: FailoverSettings = FailoverSettings()
    engine: EngineSettings = EngineSettings()
    vllm: VllmSettings = VllmSettings()
    sglang: SglangSettings = SglangSettings()
    remote: RemoteSettings = RemoteSettings()
    parallel: ParallelSettings = ParallelSettings()
    weights: WeightsSettings = WeightsSettings()
    batching: BatchingSettings = BatchingSettings()
    kv_cache: KVCacheSettings = KVCacheSettings()
    gateway: GatewaySettings = GatewaySettings()
    tenants: TenantsSettings = TenantsSettings()
    telemetry: TelemetrySettings = TelemetrySettings()

    @property
    def replica_groups(self) -> dict[str, GroupSettings]:
        """`groups`, or the one that `replicas` describes; at least one of them serves."""
        if self.backend == "remote":
            return named_groups({}, max(1, len(self.remote.urls)))
        return named_groups(self.groups, self.replicas)

    @property
    def replica_count(self) -> int:
        """Engine processes in all, those that stand by included."""
        return sum(group.replicas for group in self.replica_groups.values())

    @property
    def served_as(self) -> str:
        """`served_name` with `null` resolved."""
        if self.served_name is not None:
            return self.served_name
        is_path = self.model.startswith(("/", "./", "../", "~")) or self.model.endswith(".gguf")
        if not is_path:
            return self.model
        return PurePath(self.model).name.removesuffix(".gguf") or self.model
