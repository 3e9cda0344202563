"""Compares two live servers in interleaved blocks: A B B A, or B A A B, drawn by lot.

What drifts on a machine drifts for both, and what drifts steadily cancels within a group of four
blocks. Both blocks of a pair ask for the same: equal times and lengths, in words that no cache has
seen. A group in which the client itself was late is measured again. One group gives one difference
per percentile; `contrasts` weighs them.
"""

import secrets
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field

import msgspec
import numpy as np
import numpy.typing as npt

from steelyard.contract.errors import InvalidRequest
from steelyard.lab.audit import AuditLimits, Check, Evidence, client_checks
from steelyard.lab.bench.session import Session
from steelyard.lab.client import ClientHealth, Job, Observation
from steelyard.lab.judge.comparison import Comparison, Measure, Side, judge, overall
from steelyard.lab.judge.contrasts import compare_paired
from steelyard.lab.judge.stored import COMPARED
from steelyard.lab.load import ClosedLoop, Workload, make_plan, new_nonce
from steelyard.lab.outcomes import Outcome
from steelyard.lab.records import Records, merge_records
from steelyard.lab.stats import Window, gaps, request_latencies

__all__ = ["Block", "BlockOptions", "Group", "compare_groups", "measure_groups"]

Floats = npt.NDArray[np.float64]

_LEAD_S = 0.05
"""Between the preparation of a block and its time zero."""
_FEWEST_GROUPS = 3
_UNIT = "groups of four blocks"


@dataclass(frozen=True, slots=True, kw_only=True)
class BlockOptions:
    """How two servers are compared."""

    workload: Workload
    """Of one block; its seed decides everything that is random."""
    groups: int = 8
    margin: float = 0.05
    """Differences up to this share do not matter."""
    limits: AuditLimits = field(default_factory=AuditLimits)


@dataclass(frozen=True, slots=True, eq=False)
class Block:
    """One side, measured for a moment."""

    workload: Workload
    records: Records
    health: ClientHealth


@dataclass(frozen=True, slots=True, eq=False)
class Group:
    """Two blocks of either side, which were interleaved."""

    left: tuple[Block, ...]
    right: tuple[Block, ...]


async def measure_groups(
    left: Session,
    right: Session,
    options: BlockOptions,
    *,
    on_group: Callable[[int], None] | None = None,
    is_stopped: Callable[[], bool] = lambda: False,
) -> list[Group]:
    """The groups in which the client was sound; at most half as many again are tried.

    `on_group` hears how many there are after each. Ends early when `is_stopped` says so.
    """
    random = np.random.default_rng([options.workload.seed, 0xABBA])
    seeds = iter(range(options.workload.seed, options.workload.seed + 10**6))
    for session in (left, right):  # connections, caches and clocks of both wake up unmeasured
        await _measure_block(session, _seeded(options.workload, next(seeds)))
    groups: list[Group] = []
    for _ in range(options.groups + options.groups // 2):
        if len(groups) == options.groups or is_stopped():
            break
        starts_left = bool(random.integers(2))
        group = await _measure_group(left, right, options, seeds=seeds, starts_left=starts_left)
        if not _client_problems(group, options.limits):
            groups.append(group)
            if on_group is not None:
                on_group(len(groups))
    return groups


def compare_groups(
    labels: tuple[str, str], groups: Sequence[Group], options: BlockOptions
) -> Comparison:
    """Raises `InvalidRequest` when too few groups could be measured to say anything."""
    if len(groups) < _FEWEST_GROUPS:
        raise InvalidRequest(
            f"only {len(groups)} groups of blocks could be measured without the client being late",
            fix="leave the client more of the machine, or compare from another one",
        )
    samples = [(_samples(group.left), _samples(group.right)) for group in groups]
    is_closed = isinstance(options.workload.arrivals, ClosedLoop)
    series = list(_series(samples, is_closed=is_closed))
    if not series:
        raise InvalidRequest(
            "too few answers in a block", fix="make blocks longer, or ask more often"
        )
    logs = np.log(
        [[[_value(side, one) for one in series] for side in pair] for pair in samples]
    )  # (groups, sides, series)
    contrasts = compare_paired(logs[:, 1] - logs[:, 0])
    means = np.exp(logs.mean(axis=0))
    values = [(float(a), float(b)) for a, b in zip(means[0], means[1], strict=True)]
    rows = judge(series, values, contrasts, margin=options.margin, unit=_UNIT)
    verdict, words = overall(rows, options.margin, _UNIT)
    sides = _sides(labels, groups)
    reasons = [*_failures(labels, groups, options.limits)]
    if len(groups) < options.groups:
        reasons.append(f"only {len(groups)} of {options.groups} groups could be measured")
    return Comparison(
        left=sides[0],
        right=sides[1],
        method=f"{len(groups)} groups of interleaved blocks, their order drawn by lot",
        unit=_UNIT,
        margin=options.margin,
        verdict=verdict,
        words=words,
        is_valid=not reasons,
        reasons=reasons,
        caveats=[],
        unlike=[],
        differences=rows,
    )


async def _measure_group(
    left: Session,
    right: Session,
    options: BlockOptions,
    *,
    seeds: Iterable[int],
    starts_left: bool,
) -> Group:
    """first second second first"""
    first, second = (left, right) if starts_left else (right, left)
    numbers = iter(seeds)
    blocks: dict[int, list[Block]] = {id(left): [], id(right): []}
    for pair in ((first, second), (second, first)):
        workload = _seeded(options.workload, next(numbers))
        for session in pair:
            blocks[id(session)].append(await _measure_block(session, workload))
    return Group(tuple(blocks[id(left)]), tuple(blocks[id(right)]))


async def _measure_block(session: Session, workload: Workload) -> Block:
    """In this process: starting one of its own would take longer than a block."""
    job = Job(
        workload=workload,
        target=session.facts.target,
        nonce=new_nonce(),
        run_id=secrets.token_hex(4),
        scale=session.facts.scale,
        limits=session.options.limits,
    )
    observation = Observation(job)
    observation.prepare()
    observed = await observation.run(time.monotonic() + _LEAD_S)
    return Block(workload, observed.records, observed.health)


def _seeded(workload: Workload, seed: int) -> Workload:
    return msgspec.structs.replace(workload, seed=seed)


def _client_problems(group: Group, limits: AuditLimits) -> list[Check]:
    """What would make a run invalid for the client's sake."""
    found = []
    for block in (*group.left, *group.right):
        evidence = Evidence(
            workload=block.workload,
            plan=make_plan(block.workload),
            records=block.records,
            health=(block.health,),
            window=_WHOLE,
            is_settled=True,
        )
        if not len(block.records):
            continue
        found += [
            client_checks.check_clock(evidence, limits),
            client_checks.check_loop_lag(evidence, limits),
            client_checks.check_cpu(evidence, limits),
            client_checks.check_connections(evidence, limits),
            client_checks.check_dispatch_lag(evidence, limits),
        ]
    return [check for check in found if check.status == "fail"]


_WHOLE = Window(-np.inf, np.inf)


def _samples(blocks: Sequence[Block]) -> dict[str, Floats]:
    """All values of one side of a group, in milliseconds or per second."""
    records = merge_records([block.records for block in blocks])
    answers, between = request_latencies(records, _WHOLE), gaps(records, _WHOLE)
    busy_s = sum(float(np.nanmax(block.records.requests["end_s"])) for block in blocks)
    tokens = float(answers.output_tokens.sum())
    found = {
        "ttft_ms": answers.ttft_s * 1e3,
        "itl_ms": between.per_token_s * 1e3,
        "e2e_ms": answers.e2e_s * 1e3,
        "output_tokens_per_s": np.array([tokens / busy_s]),
    }
    return {name: values[np.isfinite(values)] for name, values in found.items()}


def _series(
    samples: Sequence[tuple[dict[str, Floats], dict[str, Floats]]], *, is_closed: bool
) -> Iterable[Measure]:
    """Percentiles that every group has enough values for."""
    for metric, statistics in COMPARED:
        fewest = min(len(side[metric]) for pair in samples for side in pair)
        for statistic in statistics:
            share = float(statistic[1:]) / 100
            if fewest < max(10, round(1 / (1 - share))):
                continue
            series = Measure(metric, statistic)
            if all(_value(side, series) > 0 for pair in samples for side in pair):
                yield series
    if is_closed:  # an open loop's rate is the one that was asked for
        yield Measure("output_tokens_per_s", "mean", more_is_better=True)


def _value(samples: dict[str, Floats], series: Measure) -> float:
    values = samples[series.metric]
    if series.statistic == "mean":
        return float(values.mean())
    return float(np.percentile(values, float(series.statistic[1:])))


def _sides(labels: tuple[str, str], groups: Sequence[Group]) -> tuple[Side, Side]:
    left, right = (
        Side(label=label, runs=len(blocks), requests=sum(len(b.records) for b in blocks))
        for label, blocks in zip(labels, _by_side(groups), strict=True)
    )
    return left, right


def _failures(
    labels: tuple[str, str], groups: Sequence[Group], limits: AuditLimits
) -> Iterable[str]:
    """Latencies of the few that survive are no base for a comparison."""
    for label, blocks in zip(labels, _by_side(groups), strict=True):
        outcomes = np.concatenate([block.records.requests["outcome"] for block in blocks])
        share = float(np.mean(outcomes != Outcome.COMPLETE)) if len(outcomes) else 1.0
        if share > limits.failed_share:
            yield f"{label}: {share:.0%} of the requests were not answered"


def _by_side(groups: Sequence[Group]) -> tuple[list[Block], list[Block]]:
    return (
        [block for group in groups for block in group.left],
        [block for group in groups for block in group.right],
    )
