"""Two live servers are measured in turns, and their difference is found."""

import asyncio

import pytest

from steelyard.contract.errors import InvalidRequest
from steelyard.lab.audit import AuditLimits
from steelyard.lab.bench.session import Session, SessionOptions
from steelyard.lab.judge import BlockOptions, Verdict, compare_groups, measure_groups
from steelyard.lab.load import Fixed, OpenLoop, Synthetic, Workload, steady
from steelyard.lab.mock.distributions import parse_distribution

from ..client.conftest import Start, start_mock  # noqa: F401 - a fixture

WORKLOAD = Workload(
    arrivals=OpenLoop(steady(60, 0.25)), content=Synthetic(input=Fixed(20), output=Fixed(4))
)
PATIENT = AuditLimits(loop_lag_ms=1e3, distortion_ms=1e3, connection_wait_ms=1e3, cpu_share=9)
"""Servers, client and test share an event loop here, on a machine that others use as well."""


@pytest.mark.slow
async def test_interleaved_blocks_tell_a_slower_server(start_mock: Start) -> None:  # noqa: F811
    fast = await start_mock(ttft_ms=parse_distribution(20), itl_ms=parse_distribution(4))
    slow = await start_mock(ttft_ms=parse_distribution(60), itl_ms=parse_distribution(12))
    sessions = [await Session.open(SessionOptions(url=mock.url)) for mock in (fast, slow)]
    before = [len(mock.truth()) for mock in (fast, slow)]
    options = BlockOptions(workload=WORKLOAD, groups=3, limits=PATIENT)
    heard: list[int] = []
    groups = await measure_groups(sessions[0], sessions[1], options, on_group=heard.append)
    assert heard == [1, 2, 3]
    comparison = compare_groups(("fast", "slow"), groups, options)
    assert comparison.is_valid, comparison.reasons
    assert comparison.verdict is Verdict.WORSE
    (itl,) = (d for d in comparison.differences if d.name == "itl_ms p50")
    assert itl.change.value == pytest.approx(2, abs=0.5)
    # Both were asked equally often, and in each pair for the same: 15 requests per block.
    asked = [len(mock.truth()) - n for mock, n in zip((fast, slow), before, strict=True)]
    assert asked == [7 * 15, 7 * 15]
    for group in groups:
        for left, right in zip(group.left, group.right, strict=True):
            assert left.workload == right.workload
        assert group.left[0].workload.seed != group.left[1].workload.seed


@pytest.mark.slow
async def test_a_comparison_that_was_stopped_too_early_says_nothing(
    start_mock: Start,  # noqa: F811
) -> None:
    mock = await start_mock(ttft_ms=parse_distribution(1), itl_ms=parse_distribution(1))
    session = await Session.open(SessionOptions(url=mock.url))
    options = BlockOptions(workload=WORKLOAD, groups=3, limits=PATIENT)
    stopped = asyncio.Event()
    groups = await measure_groups(
        session, session, options, on_group=lambda n: stopped.set(), is_stopped=stopped.is_set
    )
    assert len(groups) == 1
    with pytest.raises(InvalidRequest, match="only 1 groups"):
        compare_groups(("a", "b"), groups, options)
