"""Makes a plan out of a workload. Pure but for reading trace and prompt files."""

import itertools
from collections.abc import Sequence
from pathlib import Path
from typing import TypeVar

import numpy as np
import numpy.typing as npt

from steelyard.contract.errors import InvalidRequest
from steelyard.lab.load.arrivals import ClosedLoop, OpenLoop, TraceReplay, start_times
from steelyard.lab.load.content import AzureTrace, MooncakeTrace, PromptFile, Synthetic, ThinkTime
from steelyard.lab.load.lengths import draw_lengths
from steelyard.lab.load.plan import Plan, Sessions
from steelyard.lab.load.randomness import Streams
from steelyard.lab.load.traces import (
    MOONCAKE_BLOCK_TOKENS,
    Trace,
    read_azure,
    read_mooncake,
    read_prompts,
)
from steelyard.lab.load.workload import CacheState, Workload

__all__ = ["WARM_DECK_SESSIONS", "make_plan"]

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]
ItemT = TypeVar("ItemT")

WARM_DECK_SESSIONS = 64
"""Different sessions of a warm run: few enough to stay in a small server's cache."""
_CLOSED_DECK_SESSIONS = 4096
"""Shapes of a closed loop that ends by time; later sessions take the same shapes again."""


def make_plan(workload: Workload) -> Plan:
    """Lay out every request. Raises `InvalidRequest` when the workload cannot be made."""
    streams = Streams(workload.seed)
    match workload.content:
        case AzureTrace() | MooncakeTrace() as content:
            plan = _plan_of_trace(workload, _read(content), streams)
        case Synthetic() as content:
            starts_s, limit = _schedule(workload, streams)
            rows = _deck_rows(workload, limit)
            table = _synthetic_sessions(content, rows, streams)
            plan = _assembled(workload, starts_s, limit, table)
        case PromptFile() as content:
            starts_s, limit = _schedule(workload, streams)
            table = _prompt_sessions(content, streams)
            plan = _assembled(workload, starts_s, limit, table)
    if workload.context_tokens is not None:
        return _fitted(plan, workload.context_tokens)
    return plan


def _schedule(workload: Workload, streams: Streams) -> tuple[Floats | None, int | None]:
    """When sessions begin, and how many there are; None where the run itself decides."""
    match workload.arrivals:
        case OpenLoop() as arrivals:
            starts_s = start_times(arrivals, streams)
            return starts_s, len(starts_s)
        case ClosedLoop(sessions=sessions, duration_s=duration_s):
            if sessions is None and duration_s is None:
                raise InvalidRequest("the run has no end", fix="give a duration or a number")
            return None, sessions
        case TraceReplay():
            raise AssertionError("a workload refuses to replay anything but a trace")


def _assembled(
    workload: Workload, starts_s: Floats | None, limit: int | None, table: Sessions
) -> Plan:
    arrivals = workload.arrivals
    duration_s = arrivals.duration_s if isinstance(arrivals, ClosedLoop) else None
    if isinstance(arrivals, OpenLoop):
        duration_s = arrivals.profile.duration_s
    return Plan(arrivals, starts_s, table, limit, duration_s)


def _deck_rows(workload: Workload, limit: int | None) -> int:
    rows = _CLOSED_DECK_SESSIONS if limit is None else limit
    return min(rows, WARM_DECK_SESSIONS) if workload.cache is CacheState.WARM else rows


def _synthetic_sessions(content: Synthetic, rows: int, streams: Streams) -> Sessions:
    turns = draw_lengths(content.turns, rows, streams.generator("turns"))
    first_turn = np.concatenate(([0], np.cumsum(turns)))
    total = int(first_turn[-1])
    inputs = draw_lengths(content.input, total, streams.generator("input"))
    outputs = draw_lengths(content.output, total, streams.generator("output"))
    prefix = content.shared_prefix_tokens
    group = None
    reusable = _history_tokens(first_turn, inputs, outputs)
    if prefix:
        group = streams.generator("groups").integers(content.prefix_groups, size=rows)
        # A prompt is at least one word longer than what it shares.
        inputs[first_turn[:-1]] = np.maximum(inputs[first_turn[:-1]], prefix + 1)
        reusable = _history_tokens(first_turn, inputs, outputs)
        reusable[first_turn[:-1]] = prefix
    think_s = _think_times(content.think, first_turn, streams)
    return Sessions(
        first_turn, inputs, outputs, think_s, reusable, prefix_group=group, prefix_tokens=prefix
    )


def _prompt_sessions(content: PromptFile, streams: Streams) -> Sessions:
    conversations = read_prompts(Path(content.path))
    first_turn = np.concatenate(([0], np.cumsum([len(turns) for turns in conversations])))
    texts = tuple(itertools.chain.from_iterable(conversations))
    # What a text is in tokens only the server knows; four characters each is the usual guess.
    inputs = np.array([max(len(text) // 4, 1) for text in texts], dtype=np.int64)
    outputs = draw_lengths(content.output, len(texts), streams.generator("output"))
    think_s = _think_times(content.think, first_turn, streams)
    reusable = _history_tokens(first_turn, inputs, outputs)
    return Sessions(first_turn, inputs, outputs, think_s, reusable, texts=texts)


def _plan_of_trace(workload: Workload, trace: Trace, streams: Streams) -> Plan:
    """Each row is a session of one turn, in the order of the trace."""
    arrivals = workload.arrivals
    if isinstance(arrivals, TraceReplay):
        length_s = float("inf") if arrivals.duration_s is None else arrivals.duration_s
        cut = trace.between(arrivals.skip_s, arrivals.skip_s + length_s * arrivals.speed)
        if not len(cut):
            raise InvalidRequest("the trace has no requests in this window", fix="move the window")
        starts_s = cut.times_s / arrivals.speed
        duration_s = arrivals.duration_s or float(np.nextafter(starts_s[-1], np.inf))
        return Plan(arrivals, starts_s, _trace_sessions(cut), len(cut), duration_s)
    begins_s, limit = _schedule(workload, streams)
    if trace.blocks is not None and limit is None:
        limit = len(trace)  # a second round would find all its prefixes in the cache
    if trace.blocks is not None and limit is not None and limit > len(trace):
        raise InvalidRequest(
            f"the trace has {len(trace)} requests, the run needs {limit}", fix="shorten the run"
        )
    return _assembled(workload, begins_s, limit, _trace_sessions(trace))


def _trace_sessions(trace: Trace) -> Sessions:
    rows = len(trace)
    return Sessions(
        first_turn=np.arange(rows + 1),
        input_tokens=trace.input_tokens,
        output_tokens=trace.output_tokens,
        think_s=np.zeros(rows),
        reusable_tokens=_block_reuse(trace.input_tokens, trace.blocks),
        blocks=trace.blocks,
    )


def _block_reuse(inputs: Ints, blocks: Sequence[Sequence[int]] | None) -> Ints:
    """Tokens of leading blocks that an earlier request of the trace has sent."""
    reusable = np.zeros(len(inputs), dtype=np.int64)
    seen: set[int] = set()
    for at, ids in enumerate(blocks or ()):
        known = next((i for i, block in enumerate(ids) if block not in seen), len(ids))
        reusable[at] = min(known * MOONCAKE_BLOCK_TOKENS, inputs[at])
        seen.update(ids)
    return reusable


def _history_tokens(first_turn: Ints, inputs: Ints, outputs: Ints) -> Ints:
    """Tokens of the conversation before each turn."""
    spoken = np.cumsum(inputs + outputs) - (inputs + outputs)
    session_start = np.repeat(spoken[first_turn[:-1]], np.diff(first_turn))
    history: Ints = spoken - session_start
    return history


def _think_times(think: ThinkTime, first_turn: Ints, streams: Streams) -> Floats:
    total = int(first_turn[-1])
    if think.cv == 0 or think.mean_s == 0:
        times_s = np.full(total, think.mean_s)
    else:
        shape = think.cv**-2
        times_s = streams.generator("think").gamma(shape, think.mean_s / shape, size=total)
    times_s[first_turn[:-1]] = 0.0
    return times_s


def _fitted(plan: Plan, context_tokens: int) -> Plan:
    """The plan with every conversation cut to the context: first words, then whole turns."""
    table = plan.sessions
    outputs = np.minimum(table.output_tokens, max(context_tokens // 2, 1))
    history = _history_tokens(table.first_turn, table.input_tokens, outputs)
    room = context_tokens - history - outputs
    inputs = np.minimum(table.input_tokens, room)
    is_kept = inputs >= 1
    # Later turns only get longer, so what is kept of a session is its beginning.
    kept = np.concatenate(([0], np.cumsum(is_kept)))[table.first_turn]
    cut = int(np.sum((inputs < table.input_tokens) | (outputs < table.output_tokens)))
    fitted = Sessions(
        first_turn=kept,
        input_tokens=inputs[is_kept],
        output_tokens=outputs[is_kept],
        think_s=table.think_s[is_kept],
        reusable_tokens=np.minimum(table.reusable_tokens, inputs + history)[is_kept],
        prefix_group=table.prefix_group,
        prefix_tokens=table.prefix_tokens,
        blocks=_kept(table.blocks, is_kept),
        texts=_kept(table.texts, is_kept),
    )
    return Plan(plan.arrivals, plan.starts_s, fitted, plan.limit, plan.duration_s, cut)


def _kept(items: Sequence[ItemT] | None, keep: npt.NDArray[np.bool_]) -> tuple[ItemT, ...] | None:
    return None if items is None else tuple(itertools.compress(items, keep))


def _read(content: AzureTrace | MooncakeTrace) -> Trace:
    read = read_azure if isinstance(content, AzureTrace) else read_mooncake
    return read(Path(content.path))
