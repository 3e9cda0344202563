"""The Engine protocol: all that the gateway, the fleet and the lab know about an engine.

Implementations live in `backends`; the engine process itself is in `engine`.
"""

from collections.abc import AsyncIterator, Sequence
from typing import Literal, Protocol

import msgspec

from steelyard.contract.requests import GenerateRequest, TokenChunk

__all__ = ["Engine", "EngineInfo", "EngineState", "EngineStatus"]

EngineState = Literal["starting", "ready", "draining", "lost"]


class EngineInfo(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What does not change while an engine lives."""

    model: str
    """The name clients ask for."""
    context_tokens: int
    """Prompt and output together may be at most this long."""
    vocab_size: int
    end_token_ids: tuple[int, ...]
    """Tokens that end a stream unless `ignore_eos` is set."""
    epoch: str
    """Differs for every start of the process; tells a restarted engine from the old one."""
    pid: int = 0
    """Operating-system process; 0 when the engine is not a process of this machine."""
    kv_block_tokens: int = 0
    kv_blocks_total: int = 0
    max_running: int = 0
    """Sequences it computes at once; 0 when it does not say."""
    can_continue: bool = True
    """Whether it takes `emitted_ids`. False for endpoints that only speak text: a stream that
    broke there cannot be continued."""
    details: dict[str, str] = {}
    """For people: device, precision, kernels, bytes of weights and KV, seconds to load."""


class EngineStatus(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A snapshot. Fields named `*_total` only grow while `epoch` stays the same."""

    state: EngineState
    epoch: str = ""
    running: int = 0
    waiting: int = 0
    kv_blocks_used: int = 0
    """Blocks held by live requests; cached blocks that could be evicted count as free."""
    kv_blocks_total: int = 0
    step_time_s: float = 0.0
    """Recent mean of the time one step takes; 0 before the first."""
    steps_total: int = 0
    prompt_tokens_total: int = 0
    """Prompt tokens of admitted requests: computed ones and cached ones."""
    cached_tokens_total: int = 0
    computed_tokens_total: int = 0
    """Tokens run through the model: prompts, outputs, and recomputation after preemption."""
    produced_tokens_total: int = 0
    preemptions_total: int = 0
    finished_total: int = 0
    aborted_total: int = 0
    failed_total: int = 0
    admission_holds_total: dict[str, int] = {}
    """How often a waiting request was held back, by cause (`min_batch`, `memory`, `prefix`, …)."""


class Engine(Protocol):
    """One engine, wherever it runs.

    Every method may raise `steelyard.contract.errors.SteelyardError` and nothing else.
    """

    @property
    def info(self) -> EngineInfo:
        """Fixed facts. Valid once the engine is ready; `EngineLost` before."""
        ...

    def generate(self, request: GenerateRequest) -> AsyncIterator[TokenChunk]:
        """Stream the tokens of `request`; the last chunk carries `finish_reason`.

        Closing the iterator early aborts the request. Raises in the middle of a stream are
        errors of the tree; chunks already yielded stay valid.
        """
        ...

    async def abort(self, request_id: str) -> None:
        """Stop a request and free its memory within one step. Unknown ids are ignored."""
        ...

    async def status(self) -> EngineStatus:
        """A fresh snapshot. Changes nothing."""
        ...

    async def warm(self, prompts: Sequence[Sequence[int]]) -> None:
        """Compute prompts (token ids) into the prefix cache; returns when they are there."""
        ...

    async def drain(self) -> None:
        """Refuse new requests, finish running ones, then return."""
        ...

    async def close(self) -> None:
        """Release everything; running requests fail with `EngineLost`. Safe to repeat."""
        ...
