"""The sections of the deployment file that say how the model is computed and observed.

Values only. What they must not be together is in `rules`; the door's section is in `gateway`;
`cli.wiring` turns them into the configurations of scheduler, engine and telemetry.
"""

from typing import Annotated, Literal

from pydantic import Field

from steelyard.settings._section import Section
from steelyard.settings.quantities import Count, Milliseconds, Seconds, Size

__all__ = [
    "BatchingSettings",
    "EngineSettings",
    "KVCacheSettings",
    "LogSettings",
    "RestartSettings",
    "TelemetrySettings",
    "WeightsSettings",
]

_AUTO_MAX_RUNNING = 64


class RestartSettings(Section):
    """Starting the engine process again after it died."""

    first_delay_s: Seconds = 0.5
    """Wait before the second restart in a row, since the first comes at once; doubled after every
    further failure."""
    max_delay_s: Seconds = 30.0
    """The longest wait between two starts."""


class EngineSettings(Section):
    """The engine process."""

    device: Literal["auto", "cpu", "cuda"] = "auto"
    """Where the model runs; `auto` takes CUDA when a device is there."""
    threads: Literal["auto"] | Annotated[int, Field(ge=1, le=1024)] = "auto"
    """Compute threads on a CPU; `auto` is one per physical core this process may use."""
    kernels: Literal["auto", "native", "reference"] = "auto"
    """`native` needs a C++ compiler at the first start; `reference` is plain PyTorch and slow;
    `auto` takes native ones and falls back with a warning."""
    context_tokens: Literal["auto"] | Annotated[int, Field(ge=16, le=16_777_216)] = "auto"
    """Longest sequence, prompt and output together; `auto` is the model's own limit."""
    watchdog_s: Seconds = 120.0
    """A step that takes longer ends the process with a stack trace; it is then restarted."""
    start_timeout_s: Seconds = 600.0
    """A process that is not ready after this long is ended. Large models load for minutes."""
    restart: RestartSettings = RestartSettings()


class WeightsSettings(Section):
    """The model's weights in memory."""

    precision: Literal["auto", "fp32", "bf16", "int8", "int4"] = "auto"
    """`auto` is the fastest that keeps the model's quality."""


class BatchingSettings(Section):
    """When requests are admitted, and how much one step computes."""

    min_batch: Count = 1
    """While streams run, hold new prompts back until this many wait. Never holds when idle."""
    max_wait_ms: Milliseconds = 0.0
    """No prompt is held back longer than this; 0 disables holding."""
    max_running: Literal["auto"] | Annotated[int, Field(ge=1, le=16_384)] = "auto"
    """Sequences that may hold KV memory at once; `auto` is 64, or `max_step_tokens` if less."""
    max_waiting: Count = 1024
    """Sequences that may wait in the engine; one more is refused with 429."""
    max_step_tokens: Annotated[int, Field(ge=16, le=1_048_576)] = 512
    """Tokens computed per step at most, prompts and streams together."""
    memory_threshold: Annotated[float, Field(gt=0, le=1, allow_inf_nan=False)] = 0.90
    """Admit only while the used share of KV memory stays below this; ignored when idle."""
    step_stretch: Annotated[float, Field(ge=1, le=1000, allow_inf_nan=False)] | None = 2.5
    """A step that also reads a prompt may take this many times a step without (predicted), which
    bounds how far a long prompt slows running streams. `null` means no bound."""

    @property
    def running_limit(self) -> int:
        """`max_running` with `auto` resolved."""
        if self.max_running == "auto":
            return min(_AUTO_MAX_RUNNING, self.max_step_tokens)
        return self.max_running


class KVCacheSettings(Section):
    """The memory of running and recent sequences."""

    block_tokens: Literal[16, 32, 64] = 16
    """Tokens per page. Smaller pages share prefixes more finely; larger ones cost less per step."""
    memory: Literal["auto"] | Annotated[int, Size(minimum=1024**2)] = "auto"
    """Size of the cache; `auto` takes a share of the memory that is free after loading."""
    dtype: Literal["auto", "fp32", "bf16"] = "auto"
    """Precision of the cached values; `auto` is the one the model computes in."""
    prefix_cache: bool = True
    """Keep pages of finished sequences and share them among requests with equal beginnings."""
    salt_secret_file: Annotated[str, Field(min_length=1)] | None = None
    """File with at least 16 secret bytes, from which every tenant's cache salt is derived, so that
    no tenant can probe another's prompts. `null` draws a new secret at every start."""


class LogSettings(Section):
    """The program's own log, on standard error."""

    format: Literal["text", "json"] = "text"
    """`text` for people, `json` for collectors: one object per line."""
    level: Literal["debug", "info", "warning", "error"] = "info"
    """The least severe level that is written."""


class TelemetrySettings(Section):
    """What is measured and written down."""

    sample_s: Annotated[float, Field(ge=0.1, le=3600, allow_inf_nan=False)] = 1.0
    """Time between two samples of host, processes and GPUs."""
    sample_file: Annotated[str, Field(min_length=1)] | None = None
    """CSV file to which every sample is appended; `null` keeps samples in the metrics only."""
    sample_file_bytes: Annotated[int, Size(minimum=64 * 1024)] = 64 * 1024**2
    """Size at which the file is renamed to `<name>.1` and started anew; at most two are kept."""
    log: LogSettings = LogSettings()
