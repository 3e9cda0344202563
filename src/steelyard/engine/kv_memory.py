"""How much memory KV gets, and how its layers are grouped.

Layers that keep the same tokens (all, or a window) share a page table: they form a `KVGroup`.
"""

import logging
from collections.abc import Sequence
from dataclasses import dataclass

import psutil

from steelyard.contract.errors import SettingsError
from steelyard.models.layers.attention import AttentionShape
from steelyard.scheduling.config import GroupKind, KVGroup

__all__ = ["KVNeeds", "KVPlan", "plan_kv"]

log = logging.getLogger(__name__)

_MIB = 1 << 20
_LEAST_AUTO_BYTES = 512 * _MIB
_FREE_MEMORY_SHARE = 0.5


@dataclass(frozen=True, slots=True)
class KVNeeds:
    """What the plan is made for."""

    shapes: Sequence[AttentionShape]
    """One per layer."""
    element_bytes: int
    block_tokens: int
    context_tokens: int
    """Longest sequence wanted."""
    context_is_fixed: bool
    """False: rather serve shorter sequences than fail for want of memory."""
    max_running: int
    max_step_tokens: int
    weight_bytes: int
    kv_bytes: int
    """0: decide here."""


@dataclass(frozen=True, slots=True)
class KVPlan:
    """The groups, and which layers belong to each."""

    groups: tuple[KVGroup, ...]
    layers: tuple[tuple[int, ...], ...]
    """By group: indices of its layers."""
    total_bytes: int
    context_tokens: int
    """Longest sequence that fits, at most the wanted one."""

    def group_of(self, layer: int) -> int:
        """Index of the group that `layer` belongs to."""
        return next(i for i, layers in enumerate(self.layers) if layer in layers)


def plan_kv(needs: KVNeeds) -> KVPlan:
    """Divide the memory. Raises `SettingsError` when not even one sequence fits."""
    windows = sorted(
        {shape.window_tokens for shape in needs.shapes}, key=lambda w: (w is not None, w)
    )
    layers = tuple(
        tuple(i for i, shape in enumerate(needs.shapes) if shape.window_tokens == window)
        for window in windows
    )
    block_bytes = [_block_bytes(needs, members) for members in layers]
    least = [_blocks_for(needs, window, sequences=1) for window in windows]
    budget = needs.kv_bytes or _automatic_bytes(needs, block_bytes, least)
    blocks = _divide(needs, windows, block_bytes, budget)
    context_tokens = _longest(needs, windows, blocks)
    if context_tokens < (needs.context_tokens if needs.context_is_fixed else needs.block_tokens):
        need_mib = -(-sum(b * n for b, n in zip(block_bytes, least, strict=True)) // _MIB)
        raise SettingsError(
            f"{budget // _MIB} MiB hold less than one sequence of {needs.context_tokens} tokens",
            param="kv_cache.memory",
            fix=f"give it at least {need_mib} MiB, or serve a shorter context",
        )
    if context_tokens < needs.context_tokens:
        log.warning(
            "the KV memory holds %d tokens, so longer sequences than that are refused; the model "
            "could take %d (kv_cache.memory)",
            context_tokens,
            needs.context_tokens,
        )
    groups = tuple(
        KVGroup(
            name="full" if window is None else f"window-{window}",
            kind=GroupKind.FULL if window is None else GroupKind.WINDOW,
            block_tokens=needs.block_tokens,
            blocks=count,
            window_tokens=window,
        )
        for window, count in zip(windows, blocks, strict=True)
    )
    total = sum(b * n for b, n in zip(block_bytes, blocks, strict=True))
    return KVPlan(groups, layers, total, context_tokens)


def _block_bytes(needs: KVNeeds, members: Sequence[int]) -> int:
    elements = sum(2 * needs.shapes[i].kv_heads * needs.shapes[i].head_size for i in members)
    return elements * needs.block_tokens * needs.element_bytes


def _blocks_for(needs: KVNeeds, window: int | None, *, sequences: int) -> int:
    """Blocks that `sequences` of full length hold at once, and the null block."""
    tokens = needs.context_tokens
    if window is not None:
        tokens = min(tokens, window + needs.max_step_tokens + needs.block_tokens)
    return sequences * -(-tokens // needs.block_tokens) + 1


def _longest(needs: KVNeeds, windows: Sequence[int | None], blocks: Sequence[int]) -> int:
    """Tokens of the longest sequence that every group has room for; 0 when there is none."""
    longest = needs.context_tokens
    for window, count in zip(windows, blocks, strict=True):
        if count < _blocks_for(needs, window, sequences=1):
            # A window that does not fit does not fit any longer sequence either.
            longest = min(longest, (count - 1) * needs.block_tokens)
    return max(longest, 0)


def _automatic_bytes(needs: KVNeeds, block_bytes: Sequence[int], least: Sequence[int]) -> int:
    """As much as the weights, at least 512 MiB and two full contexts, at most half of what is free.

    Pages of the cache that were never used take no memory.
    """
    two_contexts = 2 * sum(b * n for b, n in zip(block_bytes, least, strict=True))
    wanted = max(needs.weight_bytes, _LEAST_AUTO_BYTES, two_contexts)
    return min(wanted, int(psutil.virtual_memory().available * _FREE_MEMORY_SHARE))


def _divide(
    needs: KVNeeds, windows: Sequence[int | None], block_bytes: Sequence[int], budget: int
) -> list[int]:
    """Windows get what all running sequences can use, at most an equal share; FULL the rest."""
    if len(windows) == 1:
        return [budget // block_bytes[0]]
    share = budget // len(windows)
    blocks = [0] * len(windows)
    left = budget
    for i, window in enumerate(windows):
        if window is None:
            continue
        wanted = _blocks_for(needs, window, sequences=needs.max_running)
        blocks[i] = min(wanted, share // block_bytes[i])
        left -= blocks[i] * block_bytes[i]
    full = [i for i, window in enumerate(windows) if window is None]
    if full:
        blocks[full[0]] = left // block_bytes[full[0]]
    return blocks
