"""What options ask for, and which do not go together."""

from pathlib import Path

import pytest
import typer

from steelyard.cli.bench_flags import ContentFlags, LoadFlags
from steelyard.cli.bench_workload import parse_numbers, parse_slo, read_workload
from steelyard.contract.errors import InvalidRequest
from steelyard.lab.load import (
    AzureTrace,
    CacheState,
    ClosedLoop,
    Fixed,
    MooncakeTrace,
    OpenLoop,
    PromptFile,
    Synthetic,
    ThinkTime,
    TraceReplay,
    Uniform,
)

PLAIN = ContentFlags()


def test_without_options_one_user_asks_for_half_a_minute() -> None:
    workload = read_workload(LoadFlags(), PLAIN)
    assert workload.arrivals == ClosedLoop(1, duration_s=30)
    assert workload.content == Synthetic(input=Fixed(256), output=Fixed(64))
    assert workload.cache is CacheState.COLD


@pytest.mark.parametrize(
    ("flags", "arrivals"),
    [
        (LoadFlags(concurrency=8, requests=50), ClosedLoop(8, sessions=50)),
        (
            LoadFlags(concurrency=8, duration=9, requests=50, ramp=2),
            ClosedLoop(8, duration_s=9, sessions=50, ramp_s=2),
        ),
        (
            LoadFlags(trace=Path("a.csv"), trace_speed=2, duration=60),
            TraceReplay(speed=2, duration_s=60),
        ),
    ],
)
def test_loads_without_a_clock(flags: LoadFlags, arrivals: object) -> None:
    assert read_workload(flags, PLAIN).arrivals == arrivals


@pytest.mark.parametrize(
    ("flags", "cv"),
    [
        ({}, 1.0),
        ({"arrivals": "constant"}, 0.0),
        ({"arrivals": "gamma"}, 2.0),
        ({"arrivals": "gamma", "burstiness": 3.0}, 3.0),
        ({"burstiness": 0.5}, 0.5),
    ],
)
def test_gaps_of_an_open_loop(flags: dict, cv: float) -> None:
    arrivals = read_workload(LoadFlags(rate=4, **flags), PLAIN).arrivals
    assert isinstance(arrivals, OpenLoop)
    assert arrivals.cv == cv
    assert arrivals.profile.duration_s == 30


def test_a_number_of_requests_decides_how_long_an_open_loop_takes() -> None:
    arrivals = read_workload(LoadFlags(rate=4, requests=100), PLAIN).arrivals
    assert isinstance(arrivals, OpenLoop)
    assert arrivals.profile.duration_s == 25


def test_profiles_are_ramps_and_stages() -> None:
    arrivals = read_workload(LoadFlags(profile="5@60,15@20,1:9@10"), PLAIN).arrivals
    assert isinstance(arrivals, OpenLoop)
    assert arrivals.profile.total == 5 * 60 + 15 * 20 + 5 * 10


def test_contents() -> None:
    sessions = ContentFlags(turns="2-5", think="3,1", shared_tokens=200, shared_groups=4)
    content = read_workload(LoadFlags(), sessions).content
    assert isinstance(content, Synthetic)
    assert content.turns == Uniform(2, 5)
    assert content.think == ThinkTime(3, 1)
    assert (content.shared_prefix_tokens, content.prefix_groups) == (200, 4)
    file = read_workload(LoadFlags(rate=1), ContentFlags(prompts=Path("p.jsonl"))).content
    assert file == PromptFile(path="p.jsonl", output=Fixed(64))
    azure = read_workload(LoadFlags(trace=Path("t.csv.gz")), PLAIN).content
    assert azure == AzureTrace("t.csv.gz")
    lengths = read_workload(LoadFlags(trace=Path("t.jsonl"), rate=2), PLAIN)
    assert lengths.content == MooncakeTrace("t.jsonl")
    assert isinstance(lengths.arrivals, OpenLoop)


@pytest.mark.parametrize(
    ("load", "words"),
    [
        (LoadFlags(rate=1, concurrency=1), "exclude each other"),
        (LoadFlags(rate=1, profile="1@1"), "exclude each other"),
        (LoadFlags(burstiness=2), "open loop"),
        (LoadFlags(rate=1, arrivals="poisson", burstiness=2), "gamma"),
        (LoadFlags(concurrency=1, max_in_flight=3), "no use for --max-in-flight"),
        (LoadFlags(profile="1@1", duration=3), "no use for --duration"),
        (LoadFlags(rate=2, requests=3, duration=3), "no use for --duration"),
        (LoadFlags(rate=2, ramp=3), "no use for --ramp"),
        (LoadFlags(trace=Path("x.txt")), "neither"),
    ],
)
def test_options_that_do_not_go_together_are_refused(load: LoadFlags, words: str) -> None:
    with pytest.raises(typer.BadParameter, match=words):
        read_workload(load, PLAIN)


def test_the_lab_refuses_the_rest() -> None:
    with pytest.raises(InvalidRequest):
        read_workload(LoadFlags(), ContentFlags(prompt_tokens="many"))
    with pytest.raises(InvalidRequest):
        read_workload(LoadFlags(trace=Path("t.csv")), ContentFlags(cache="warm"))


def test_targets() -> None:
    target = parse_slo("ttft=500, itl=50,percentile=95")
    assert target is not None
    assert (target.ttft_ms, target.itl_ms, target.percentile) == (500, 50, 95)
    assert parse_slo(None) is None
    for wrong in ("ttft", "ttft=-1", "speed=1", "percentile=99", "ttft=1,percentile=101"):
        with pytest.raises(typer.BadParameter):
            parse_slo(wrong)


def test_lists_of_numbers_ascend() -> None:
    assert parse_numbers("8,1,2,2", int, "-c") == (1, 2, 8)
    for wrong in ("", "0,1", "a", "1,inf", "1.5"):
        with pytest.raises(typer.BadParameter):
            parse_numbers(wrong, int if "." in wrong else float, "-c")
