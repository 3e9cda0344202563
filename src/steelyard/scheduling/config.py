"""Settings of the scheduler and of KV memory, resolved: every value is final here.

The deployment file's `batching` and `kv_cache` sections are turned into these by `cli.wiring`.
"""

import enum
from dataclasses import dataclass

from steelyard.contract.errors import SettingsError

__all__ = ["GroupKind", "KVGroup", "SchedulerConfig"]


class GroupKind(enum.Enum):
    """Which tokens of a sequence a group of layers must keep.

    Whatever the kind, position p of a sequence belongs to column p // `block_tokens` of its row in
    the group's block table.
    """

    FULL = "full"
    """Every token."""
    WINDOW = "window"
    """The last `window_tokens` tokens; older blocks are given back while the sequence runs."""
    COMPRESSED = "compressed"
    """Every token, several of them folded into one entry; a block spans more tokens."""
    STATE = "state"
    """One recurrent state instead of tokens. A slice [start, end) reads the state that column
    (start - 1) // `block_tokens` holds and leaves its own in column (end - 1) // `block_tokens`;
    columns in between stay 0. Resumable only where a slice ended exactly at a block's end."""


@dataclass(frozen=True, slots=True)
class KVGroup:
    """Layers whose KV is kept alike and shares one page table.

    `block_tokens` counts tokens of the sequence (not entries), so a compressed group has larger
    values. All groups' values are multiples of the smallest one, which is the hash granularity.
    """

    name: str
    kind: GroupKind
    block_tokens: int
    blocks: int
    """Physical blocks that exist; ids run over [0, blocks). Block 0 is never handed out."""
    window_tokens: int | None = None
    """Only for WINDOW: how many of the newest tokens are attended to, the current one included."""

    def __post_init__(self) -> None:
        assert self.block_tokens >= 1, self
        assert (self.window_tokens is not None) == (self.kind is GroupKind.WINDOW), self
        assert self.window_tokens is None or self.window_tokens >= 1, self
        if self.blocks < 2:
            raise SettingsError(
                f"the memory for {self.name!r} holds no block of {self.block_tokens} tokens",
                param="kv_cache",
                fix="give the KV cache more memory",
            )


@dataclass(frozen=True, slots=True)
class SchedulerConfig:
    """When to admit, how much to compute per step, and when to refuse."""

    max_running: int = 64
    """Sequences that may hold KV memory at once; counts as `max_step_tokens` where that is
    smaller, so that every stream can advance in every step."""
    max_waiting: int = 1024
    """Bound of the queue; one more is refused with `Overloaded`."""
    max_step_tokens: int = 512
    """Tokens computed per step at most, prefill and decode together."""
    context_tokens: int = 2048
    """Prompt and output of one sequence together."""
    min_batch: int = 1
    """While decodes run, hold prefill back until this many requests wait …"""
    max_wait_s: float = 0.0
    """… but no request longer than this. 0 disables holding."""
    memory_threshold: float = 0.90
    """Admit only while the used share of KV blocks stays below this; ignored when idle."""
    step_stretch: float = 2.5
    """A step with running decodes may take this many times a step without prefill (predicted),
    which bounds how far a long prompt slows running streams. `inf` means no bound."""
    min_prefill_tokens: int = 16
    """Prefill always advances by this many tokens per step, whatever `step_stretch` says (by a
    quarter in one step of many, if all are alike, to learn what prefill costs)."""
    prefix_cache: bool = True
    """Keep and share KV blocks of equal prefixes."""

    def __post_init__(self) -> None:
        for name in (
            "max_running",
            "max_waiting",
            "max_step_tokens",
            "min_batch",
            "min_prefill_tokens",
        ):
            _require(getattr(self, name) >= 1, name, "at least 1")
        _require(self.context_tokens >= 2, "context_tokens", "at least 2")
        _require(self.max_wait_s >= 0, "max_wait_s", "not negative")
        _require(0 < self.memory_threshold <= 1, "memory_threshold", "in (0, 1]")
        _require(self.step_stretch >= 1, "step_stretch", "at least 1")


def _require(holds: bool, name: str, wanted: str) -> None:
    if not holds:
        raise SettingsError(f"must be {wanted}", param=name)
