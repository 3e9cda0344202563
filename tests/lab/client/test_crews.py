"""Client processes: together they do exactly what one would do, and none is left behind."""

import asyncio
import os
import signal
from pathlib import Path

import numpy as np
import psutil
import pytest

from steelyard.contract.errors import InternalError, InvalidRequest
from steelyard.lab.client.crew import Crew
from steelyard.lab.client.driver import Share
from steelyard.lab.client.job import Job
from steelyard.lab.client.target import Target
from steelyard.lab.load import (
    AzureTrace,
    ClosedLoop,
    Fixed,
    OpenLoop,
    Synthetic,
    TraceReplay,
    Workload,
    new_nonce,
    steady,
)
from steelyard.lab.mock.distributions import parse_distribution
from steelyard.lab.outcomes import Outcome

from .conftest import Start

_SHORT = Synthetic(input=Fixed(20), output=Fixed(4))


async def test_two_processes_deliver_one_arrival_process(start_mock: Start, tmp_path: Path) -> None:
    mock = await start_mock(ttft_ms=parse_distribution(10), itl_ms=parse_distribution(1))
    report = await Crew(jobs(mock.url, tmp_path, workers=2)).run()
    requests = report.records.requests
    assert sorted(requests["session"]) == list(range(40))
    assert [np.sum(requests["worker"] == worker) for worker in (0, 1)] == [20, 20]
    assert report.records.is_complete.all()
    assert len(mock.truth()) == 40
    assert [health.worker for health in report.health] == [0, 1]
    assert all(health.loop_lags_s for health in report.health)


async def test_stopping_a_crew_keeps_what_was_measured(start_mock: Start, tmp_path: Path) -> None:
    mock = await start_mock(ttft_ms=parse_distribution(10), itl_ms=parse_distribution(1))
    crew = Crew(jobs(mock.url, tmp_path, arrivals=ClosedLoop(2, duration_s=600)))
    began = asyncio.Event()
    running = asyncio.create_task(crew.run(on_begin=lambda _: began.set()))
    await began.wait()
    await asyncio.sleep(1)
    crew.stop()
    async with asyncio.timeout(5):
        report = await running
    assert np.sum(report.records.requests["outcome"] == Outcome.COMPLETE) > 10


async def test_a_client_that_dies_fails_the_run(start_mock: Start, tmp_path: Path) -> None:
    mock = await start_mock()
    crew = Crew(jobs(mock.url, tmp_path, workers=2, arrivals=ClosedLoop(2, duration_s=600)))
    running = asyncio.create_task(crew.run(on_begin=lambda _: _kill_a_client()))
    with pytest.raises(InternalError, match="client process ended"):
        async with asyncio.timeout(20):
            await running
    assert not _clients()


async def test_a_job_that_cannot_be_done_says_why(tmp_path: Path) -> None:
    workload = Workload(arrivals=TraceReplay(), content=AzureTrace(str(tmp_path / "gone.csv")))
    (job,) = jobs("http://127.0.0.1:1", tmp_path)
    broken = Job(
        workload=workload, target=job.target, nonce=job.nonce, run_id="x", records_path="x"
    )
    with pytest.raises(InvalidRequest, match=r"gone\.csv"):
        await Crew([broken]).run()


def jobs(url: str, folder: Path, *, workers: int = 1, arrivals=None) -> list[Job]:
    workload = Workload(arrivals=arrivals or OpenLoop(steady(40, 1)), content=_SHORT)
    return [
        Job(
            workload=workload,
            target=Target(url=url, model="m"),
            nonce=new_nonce(),
            run_id="test",
            share=Share(worker, workers),
            is_prompt=False,
            records_path=str(folder / f"{worker}.npz"),
        )
        for worker in range(workers)
    ]


def _clients() -> list[psutil.Process]:
    return [
        child
        for child in psutil.Process().children()
        if "steelyard.lab.client.worker" in child.cmdline()
    ]


def _kill_a_client() -> None:
    os.kill(_clients()[0].pid, signal.SIGKILL)
