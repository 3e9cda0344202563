"""Plans: sessions, think time, traces, contexts."""

import json
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from steelyard.contract.errors import InvalidRequest
from steelyard.lab.load import (
    AzureTrace,
    CacheState,
    ClosedLoop,
    Fixed,
    MooncakeTrace,
    OpenLoop,
    Plan,
    PromptFile,
    Synthetic,
    ThinkTime,
    TraceReplay,
    Uniform,
    Workload,
    make_plan,
    steady,
)

from .test_lengths import LENGTHS


@settings(max_examples=50)
@given(LENGTHS, LENGTHS, st.integers(1, 4), st.integers(0, 2**31), st.integers(2, 20_000))
def test_every_conversation_fits_the_context(prompt, output, turns, seed, context) -> None:
    content = Synthetic(input=prompt, output=output, turns=Uniform(1, turns))
    plan = make_plan(
        Workload(
            arrivals=OpenLoop(steady(10, 3)), content=content, seed=seed, context_tokens=context
        )
    )
    for session in range(30):
        spoken = [turn.input_tokens + turn.output_tokens for turn in plan.turns(session)]
        assert spoken
        assert min(spoken) >= 2
        assert sum(spoken) <= context


def test_equal_workloads_give_equal_plans() -> None:
    first, second = (_columns(make_plan(_conversations(seed=4))) for _ in range(2))
    other = _columns(make_plan(_conversations(seed=5)))
    for name, column in first.items():
        np.testing.assert_array_equal(column, second[name])
        assert len(column) != len(other[name]) or np.any(column != other[name]), name


def test_later_turns_wait_for_their_user() -> None:
    plan = make_plan(_conversations(seed=1))
    waits = [turn.think_s for s in range(500) for turn in plan.turns(s) if turn.number]
    assert np.mean(waits) == pytest.approx(2, rel=0.1)
    assert np.std(waits) == pytest.approx(2, rel=0.15)
    assert all(plan.turns(s)[0].think_s == 0 for s in range(500))


def test_a_later_turn_can_reuse_the_conversation_before_it() -> None:
    plan = make_plan(_conversations(seed=1))
    turns = plan.turns(0)
    reusable = [int(plan.sessions.reusable_tokens[plan.turn_at(0, t.number)]) for t in turns]
    spoken = np.cumsum([0, *(t.input_tokens + t.output_tokens for t in turns)])
    assert reusable == list(spoken[:-1])


def test_a_closed_loop_has_no_times_and_never_runs_out_of_shapes() -> None:
    content = Synthetic(input=Uniform(10, 500), output=Fixed(5))
    plan = make_plan(Workload(arrivals=ClosedLoop(8, duration_s=60), content=content))
    assert plan.starts_s is None
    assert plan.limit is None
    assert plan.turns(1_000_003)[0].session == 1_000_003


def test_a_closed_loop_without_an_end_is_refused() -> None:
    content = Synthetic(input=Fixed(10), output=Fixed(5))
    with pytest.raises(InvalidRequest, match="no end"):
        make_plan(Workload(arrivals=ClosedLoop(8), content=content))


def test_a_trace_is_replayed_at_its_own_times(tmp_path: Path) -> None:
    plan = make_plan(
        Workload(
            arrivals=TraceReplay(speed=2, skip_s=2, duration_s=3), content=_azure(tmp_path, 20)
        )
    )
    np.testing.assert_allclose(plan.starts_s, [0, 0.5, 1, 1.5, 2, 2.5])
    assert [plan.turns(s)[0].input_tokens for s in range(6)] == [102, 103, 104, 105, 106, 107]
    assert plan.duration_s == 3


def test_a_window_without_requests_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InvalidRequest, match="window"):
        make_plan(Workload(arrivals=TraceReplay(skip_s=500), content=_azure(tmp_path, 20)))


def test_a_trace_of_lengths_can_be_sent_at_any_rate_and_begins_again(tmp_path: Path) -> None:
    plan = make_plan(Workload(arrivals=OpenLoop(steady(5, 10)), content=_azure(tmp_path, 20)))
    assert plan.limit == 50
    assert plan.turns(21)[0].input_tokens == 101


def test_a_trace_with_blocks_does_not_begin_again(tmp_path: Path) -> None:
    path = tmp_path / "m.jsonl"
    ids = [[1, 2], [1, 2, 3], [4], [1, 5]]
    lengths = [1024, 1200, 100, 600]
    path.write_text("\n".join(map(_mooncake_row, range(4), lengths, ids)))
    content = MooncakeTrace(str(path))
    plan = make_plan(Workload(arrivals=TraceReplay(), content=content))
    assert list(plan.sessions.reusable_tokens) == [0, 1024, 0, 512]
    assert make_plan(Workload(arrivals=ClosedLoop(2, duration_s=9), content=content)).limit == 4
    with pytest.raises(InvalidRequest, match="the trace has 4"):
        make_plan(Workload(arrivals=OpenLoop(steady(5, 1)), content=content))


def test_prompt_files_give_sessions_with_their_turns(tmp_path: Path) -> None:
    path = tmp_path / "p.jsonl"
    path.write_text('{"turns": ["One?", "Two?"]}\n{"turns": ["Three?"]}\n')
    content = PromptFile(path=str(path), output=Fixed(64))
    plan = make_plan(Workload(arrivals=OpenLoop(steady(1, 5)), content=content))
    assert [len(plan.turns(s)) for s in range(4)] == [2, 1, 2, 1]


def test_a_shared_beginning_is_part_of_the_prompt() -> None:
    content = Synthetic(
        input=Fixed(100), output=Fixed(5), shared_prefix_tokens=400, prefix_groups=3
    )
    plan = make_plan(Workload(arrivals=OpenLoop(steady(10, 10)), content=content))
    assert set(plan.sessions.input_tokens) == {401}
    assert set(plan.sessions.prefix_group) == {0, 1, 2}


@pytest.mark.parametrize("cache", [CacheState.COLD, CacheState.KEEP])
def test_only_traces_can_be_replayed(cache: CacheState) -> None:
    with pytest.raises(InvalidRequest, match="only a trace"):
        Workload(
            arrivals=TraceReplay(),
            content=Synthetic(input=Fixed(1), output=Fixed(1)),
            cache=cache,
        )


def _conversations(seed: int) -> Workload:
    content = Synthetic(
        input=Uniform(10, 50), output=Uniform(5, 9), turns=Uniform(2, 4), think=ThinkTime(2.0, 1.0)
    )
    return Workload(arrivals=OpenLoop(steady(50, 10)), content=content, seed=seed)


def _columns(plan: Plan) -> dict[str, np.ndarray]:
    table = plan.sessions
    return {
        "starts": plan.starts_s,
        "input": table.input_tokens,
        "output": table.output_tokens,
        "think": table.think_s,
    }


def _azure(folder: Path, rows: int) -> AzureTrace:
    lines = [f"2023-11-16 18:15:{at:02d}.0000000,{100 + at},{at + 1}" for at in range(rows)]
    path = folder / "azure.csv"
    path.write_text("\n".join(["TIMESTAMP,ContextTokens,GeneratedTokens", *lines]))
    return AzureTrace(str(path))


def _mooncake_row(at: int, length: int, ids: list[int]) -> str:
    row = {"timestamp": at * 1000, "input_length": length, "output_length": 5, "hash_ids": ids}
    return json.dumps(row)
