"""A client at work: on time, as many at once as asked, nothing lost, whatever the server does."""

import asyncio
import time

import numpy as np
import pytest

from steelyard.lab.client.driver import Limits, Share
from steelyard.lab.client.job import Job, Progress
from steelyard.lab.client.observation import Observation, Observed
from steelyard.lab.client.target import Extras, Target
from steelyard.lab.load import (
    CacheState,
    ClosedLoop,
    Fixed,
    OpenLoop,
    Synthetic,
    ThinkTime,
    Workload,
    new_nonce,
    steady,
)
from steelyard.lab.mock.distributions import parse_distribution
from steelyard.lab.outcomes import Outcome, RequestFlag
from steelyard.lab.records import Records

from ..scripted_server import END, HEAD, answer, event, scripted, token
from .conftest import Start

FAST = {"ttft_ms": parse_distribution(20), "itl_ms": parse_distribution(2)}
SHORT = Synthetic(input=Fixed(20), output=Fixed(5))


async def test_requests_leave_when_they_are_due_and_match_what_the_server_saw(
    start_mock: Start,
) -> None:
    mock = await start_mock(**FAST)
    seen = await observe(mock.url, OpenLoop(steady(50, 1)))
    requests, truth = seen.records.requests, mock.truth()
    assert len(requests) == len(truth) == 50
    assert seen.records.is_complete.all()
    assert np.all(requests["dispatched_s"] >= requests["scheduled_s"])
    assert np.median(requests["sent_s"] - requests["scheduled_s"]) < 0.02
    for row in requests:
        request = truth[f"test-{row['session']}-{row['turn']}"]
        assert row["output_tokens"] == request.output_tokens == 5
        assert row["prompt_tokens"] == request.prompt_tokens
        measured_s = row["first_token_s"] - row["sent_s"]
        assert measured_s == pytest.approx(request.ttft_ns / 1e9, abs=0.05)


async def test_a_closed_loop_keeps_its_concurrency_and_never_exceeds_it(start_mock: Start) -> None:
    mock = await start_mock(**FAST)
    seen = await observe(mock.url, ClosedLoop(7, duration_s=1))
    assert seen.health.requests_in_flight_peak == 7
    assert seen.health.busy_connections_peak == 7
    busy_s = np.sum(seen.records.requests["end_s"] - seen.records.requests["sent_s"])
    assert busy_s == pytest.approx(7 * 1, rel=0.15)
    assert np.all(seen.records.requests["scheduled_s"] < 1)


async def test_a_closed_loop_of_n_sessions_plays_each_of_them_once(start_mock: Start) -> None:
    mock = await start_mock(**FAST)
    seen = await observe(mock.url, ClosedLoop(3, sessions=10))
    assert sorted(seen.records.requests["session"]) == list(range(10))


async def test_waiting_for_the_asked_cap_is_part_of_the_latency(start_mock: Start) -> None:
    mock = await start_mock(**FAST)
    seen = await observe(mock.url, OpenLoop(steady(100, 0.5), cv=0, concurrency_cap=2))
    requests = seen.records.requests
    assert seen.health.requests_in_flight_peak == 2
    # 50 requests of about 28 ms, two at a time: the last one leaves 0.2 s late.
    waits_s = requests["released_s"] - requests["dispatched_s"]
    assert waits_s[-1] > 0.1
    assert np.all(requests["dispatched_s"] - requests["scheduled_s"] < 0.05)
    assert np.all(np.diff(requests["released_s"]) >= 0), "first come, first served"


async def test_workers_share_the_sessions_and_the_concurrency() -> None:
    shares = [Share(worker, 3) for worker in range(3)]
    assert [share.part_of(10) for share in shares] == [4, 3, 3]
    assert sum(share.part_of(2) for share in shares) == 2


async def test_a_conversation_repeats_what_was_answered() -> None:
    async def script(asked, writer) -> None:
        writer.write(answer(f"answer {asked.number}", "!"))

    content = Synthetic(input=Fixed(20), output=Fixed(5), turns=Fixed(3), think=ThinkTime(0.05))
    async with scripted(script) as server:
        seen = await observe(server.url, OpenLoop(steady(1, 1), cv=0), content=content)
    roles = [[m["role"] for m in asked.body["messages"]] for asked in server.asked]
    assert roles[2] == ["user", "assistant", "user", "assistant", "user"]
    last = [message["content"] for message in server.asked[2].body["messages"]]
    assert [last[1], last[3]] == ["answer 0!", "answer 1!"]
    assert last[:3] == [m["content"] for m in server.asked[1].body["messages"]]
    requests = seen.records.requests
    assert list(requests["turn"]) == [0, 1, 2]
    np.testing.assert_allclose(requests["scheduled_s"][1:], requests["end_s"][:-1] + 0.05)
    assert list(requests["prompt_asked"]) == [20, 45, 70]


async def test_a_conversation_over_plain_completions_is_one_growing_text() -> None:
    async def script(asked, writer) -> None:
        text = {"choices": [{"text": " yes", "finish_reason": "stop"}]}
        writer.write(HEAD + event(text) + END)

    content = Synthetic(input=Fixed(4), output=Fixed(5), turns=Fixed(2))
    async with scripted(script) as server:
        await observe(server.url, ClosedLoop(1, sessions=1), content=content, api="completions")
    first, second = (asked.body["prompt"] for asked in server.asked)
    assert second.startswith(f"{first}\n yes\n")


@pytest.mark.parametrize(
    ("fault", "outcome"),
    [
        ("fault_429", Outcome.SHED),
        ("fault_500", Outcome.SERVER_ERROR),
        ("fault_reset", Outcome.RESET),
        ("fault_truncate", Outcome.TRUNCATED),
        ("fault_malformed", Outcome.MALFORMED),
        ("fault_stall", Outcome.STALLED),
    ],
)
async def test_failures_are_counted_as_the_server_planted_them(
    start_mock: Start, fault: str, outcome: Outcome
) -> None:
    mock = await start_mock(**FAST, **{fault: 0.4})
    seen = await observe(mock.url, OpenLoop(steady(60, 1)), limits=Limits(stall_s=0.3))
    outcomes = seen.records.requests["outcome"]
    planted = sum(request.outcome not in ("finished",) for request in mock.truth().values())
    assert 5 < planted < 50
    assert np.sum(outcomes == outcome) == planted
    assert np.sum(outcomes == Outcome.COMPLETE) == 60 - planted


async def test_an_answer_that_takes_too_long_is_given_up_and_the_server_sees_it() -> None:
    left = asyncio.Event()

    async def script(asked, writer) -> None:
        writer.write(HEAD)
        try:
            while True:
                writer.write(token("a"))
                await writer.drain()
                await asyncio.sleep(0.02)
        except ConnectionError:
            left.set()
            raise

    async with scripted(script) as server, asyncio.timeout(5):
        seen = await observe(server.url, ClosedLoop(1, sessions=1), limits=Limits(request_s=0.3))
        await left.wait()
    assert list(seen.records.requests["outcome"]) == [Outcome.TIMED_OUT]
    assert seen.records.requests["end_s"][0] == pytest.approx(0.3, abs=0.2)


async def test_a_server_that_refuses_at_once_is_not_hammered() -> None:
    async def script(asked, writer) -> None:
        writer.write(b"HTTP/1.1 429 No\r\ncontent-length: 0\r\n\r\n")

    async with scripted(script) as server:
        seen = await observe(server.url, ClosedLoop(2, duration_s=0.5))
    assert 4 <= len(seen.records) <= 14


async def test_stopping_keeps_what_was_measured(start_mock: Start) -> None:
    mock = await start_mock(ttft_ms=parse_distribution(100), itl_ms=parse_distribution(50))
    observation = make(mock.url, OpenLoop(steady(50, 100), cv=0, concurrency_cap=10))
    observation.prepare()
    running = asyncio.create_task(observation.run(time.monotonic()))
    await asyncio.sleep(0.8)
    observation.stop()
    async with asyncio.timeout(1):
        seen = await running
    outcomes = seen.records.requests["outcome"]
    assert set(outcomes) == {Outcome.COMPLETE, Outcome.ABANDONED}
    assert np.sum(outcomes == Outcome.COMPLETE) >= 8
    assert np.sum(np.isnan(seen.records.requests["sent_s"])) >= 10, "those behind the cap count"


async def test_answers_that_come_after_the_patience_with_them_are_abandoned() -> None:
    async def script(asked, writer) -> None:
        writer.write(HEAD)
        await asyncio.sleep(0.6)
        writer.write(answer("late")[len(HEAD) :])

    async with scripted(script) as server:
        seen = await observe(server.url, OpenLoop(steady(10, 0.2)), limits=Limits(drain_s=0.1))
    assert set(seen.records.requests["outcome"]) == {Outcome.ABANDONED}


async def test_a_warm_deck_is_repeated_and_a_cold_run_is_not(start_mock: Start) -> None:
    async def script(asked, writer) -> None:
        writer.write(answer("a"))

    for cache, different in ((CacheState.WARM, 64), (CacheState.COLD, 100)):
        async with scripted(script) as server:
            await observe(server.url, ClosedLoop(4, sessions=100), cache=cache)
        prompts = {asked.body["messages"][0]["content"] for asked in server.asked}
        assert len(prompts) == different


async def test_progress_is_reported_while_it_runs(start_mock: Start) -> None:
    mock = await start_mock(**FAST)
    reports: list[Progress] = []
    observation = make(mock.url, ClosedLoop(4, duration_s=1.3))
    await observation.run(time.monotonic(), report=reports.append)
    assert len(reports) == 2
    assert reports[-1].complete > reports[0].complete > 0
    assert reports[-1].tokens == reports[-1].complete * 5
    assert reports[0].ttft_s


async def test_texts_are_counted_again_for_a_sample(start_mock: Start, smollm2_path) -> None:
    mock = await start_mock(**FAST)
    seen = await observe(
        mock.url, ClosedLoop(4, sessions=20), tokenizer=str(smollm2_path), count_again_every=4
    )
    counted = seen.records.requests["output_retokenised"]
    assert np.sum(counted > 0) == 5
    assert np.sum(counted == -1) == 15


async def test_plain_prompts_can_be_token_ids(smollm2_path) -> None:
    async def script(asked, writer) -> None:
        text = {"choices": [{"text": "a", "token_ids": [5, 6], "finish_reason": "stop"}]}
        writer.write(HEAD + event(text) + END)

    async with scripted(script) as server:
        seen = await observe(
            server.url,
            ClosedLoop(1, sessions=2),
            api="completions",
            tokenizer=str(smollm2_path),
            sends_ids=True,
        )
    assert all(isinstance(token, int) for token in server.asked[0].body["prompt"])
    assert len(server.asked[0].body["prompt"]) == pytest.approx(20, abs=2)
    assert seen.records.flagged(RequestFlag.BUNDLED).all()


def make(
    url: str,
    arrivals,
    *,
    content=SHORT,
    cache: CacheState = CacheState.COLD,
    api="chat",
    **job,
) -> Observation:
    return Observation(
        Job(
            workload=Workload(arrivals=arrivals, content=content, cache=cache),
            target=Target(url=url, model="m", api=api, extras=Extras()),
            nonce=new_nonce(),
            run_id="test",
            **job,
        )
    )


async def observe(url: str, arrivals, **options) -> Observed:
    async with asyncio.timeout(20):
        observation = make(url, arrivals, **options)
        observation.prepare()
        seen = await observation.run(time.monotonic() + 0.05)
    check_integrity(seen.records)
    return seen


def check_integrity(records: Records) -> None:
    """What holds for all records, whatever happened."""
    requests = records.requests
    assert np.sum(requests["events"]) == len(records.event_times_s)
    for row in requests:
        events = slice(row["first_event"], row["first_event"] + row["events"])
        times_s = records.event_times_s[events]
        assert np.all(np.diff(times_s) >= 0)
        if row["outcome"] == Outcome.COMPLETE:
            assert row["scheduled_s"] <= row["dispatched_s"] <= row["released_s"] <= row["sent_s"]
            assert row["sent_s"] < row["first_byte_s"] <= times_s[0] == row["first_token_s"]
            assert times_s[-1] == row["last_token_s"] <= row["end_s"]
