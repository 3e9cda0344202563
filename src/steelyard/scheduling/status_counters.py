"""What the scheduler counts, in the words of `contract.EngineStatus`."""

from dataclasses import dataclass, field

__all__ = ["StatusCounters"]


@dataclass(slots=True)
class StatusCounters:
    """All of `EngineStatus` that the scheduler knows; see there for what the fields mean."""

    running: int = 0
    waiting: int = 0
    kv_blocks_used: int = 0
    kv_blocks_total: int = 0
    step_time_s: float = 0.0
    steps_total: int = 0
    prompt_tokens_total: int = 0
    cached_tokens_total: int = 0
    computed_tokens_total: int = 0
    produced_tokens_total: int = 0
    preemptions_total: int = 0
    finished_total: int = 0
    aborted_total: int = 0
    failed_total: int = 0
    admission_holds_total: dict[str, int] = field(default_factory=dict)
