"""One client at work in the running event loop: plan, connections, driver and pulse put together.

`worker` runs it in a process of its own; tests run it here, with parts that are planted to fail.
"""

import asyncio
import gc
import resource
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from steelyard.checkpoints import open_checkpoint
from steelyard.contract.errors import InvalidRequest
from steelyard.lab.client.conversation import ConversationMaker
from steelyard.lab.client.driver import Driver, Sender, sessions_of
from steelyard.lab.client.job import Job, Progress
from steelyard.lab.client.pacing import Pacer
from steelyard.lab.client.pool import ConnectionPool
from steelyard.lab.client.prepared import PreparedOpenings
from steelyard.lab.client.pulse import ClientHealth, Pulse
from steelyard.lab.client.recorder import Recorder
from steelyard.lab.client.target import resolve
from steelyard.lab.load import Plan, PromptMaker, make_plan
from steelyard.lab.records import Records
from steelyard.text import Tokenizer, open_tokenizer

__all__ = ["Instruments", "Observation", "Observed"]

_PROGRESS_EVERY_S = 0.5


@dataclass(frozen=True, slots=True)
class Instruments:
    """What an observation works with besides its job; the defaults are what a real run uses."""

    sender: Callable[[ConnectionPool], Sender] = lambda pool: pool
    """May put something between driver and pool."""
    unix_now: Callable[[], float] = time.time
    plan: Callable[[Plan], Plan] = lambda plan: plan
    """May change what is sent when."""


@dataclass(frozen=True, slots=True, eq=False)
class Observed:
    """What came out."""

    records: Records
    health: ClientHealth


class Observation:
    """`prepare`, then `run` once. `stop` ends it early and keeps what was measured."""

    def __init__(self, job: Job, instruments: Instruments = Instruments()) -> None:
        """Raises `InvalidRequest` when the job cannot be done. Reads files; sends nothing."""
        self._job = job
        self._instruments = instruments
        self._plan = instruments.plan(make_plan(job.workload))
        self._tokenizer = None if job.tokenizer is None else _open(job.tokenizer)
        if job.sends_ids and self._tokenizer is None:
            raise InvalidRequest("token ids need a tokenizer", fix="name a tokenizer")
        prompts = PromptMaker(
            self._plan,
            seed=job.workload.seed,
            cache=job.workload.cache,
            nonce=job.nonce,
            scale=job.scale,
        )
        self._conversations = ConversationMaker(
            job.target, prompts, encode=self._encode if job.sends_ids else None
        )
        self._pool = ConnectionPool(resolve(job.target.address))
        self._openings = PreparedOpenings(self._plan, self._conversations)
        self._driver: Driver | None = None
        self._is_stopped = False

    def prepare(self) -> None:
        """Write the first requests, so that they are ready when they are due. Takes seconds."""
        self._openings.fill(sessions_of(self._plan, self._job.share))
        gc.collect()

    async def run(
        self, start_s: float, *, report: Callable[[Progress], None] | None = None
    ) -> Observed:
        """Play the plan from `start_s` of the monotonic clock. `report` None: nobody watches."""
        allow_many_connections()
        job, pulse, pacer = self._job, Pulse(unix_now=self._instruments.unix_now), Pacer()
        recorder = Recorder(worker=job.share.worker, start_s=start_s)
        self._driver = driver = Driver(
            plan=self._plan,
            openings=self._openings,
            sender=self._instruments.sender(self._pool),
            recorder=recorder,
            pacer=pacer,
            start_s=start_s,
            share=job.share,
            limits=job.limits,
            run_id=job.run_id,
            count_again_every=job.count_again_every,
        )
        if self._is_stopped:
            driver.stop()
        watching = asyncio.create_task(self._watch(driver, recorder, pulse, report))
        try:
            with _without_garbage_collection():
                pulse.begin(pacer)
                await driver.run()
                health = pulse.health(
                    worker=job.share.worker,
                    pool=self._pool.counts,
                    in_flight_peak=driver.in_flight_peak,
                    token_events=recorder.token_events,
                )
        finally:
            watching.cancel()
            pacer.close()
            self._pool.close()
        return Observed(recorder.records(self._count_tokens if self._tokenizer else None), health)

    def stop(self) -> None:
        """See the class. Safe to repeat."""
        self._is_stopped = True
        if self._driver is not None:
            self._driver.stop()

    async def _watch(
        self,
        driver: Driver,
        recorder: Recorder,
        pulse: Pulse,
        report: Callable[[Progress], None] | None,
    ) -> None:
        while report is not None:
            await asyncio.sleep(_PROGRESS_EVERY_S)
            done = recorder.tally
            report(
                Progress(
                    worker=self._job.share.worker,
                    in_flight=driver.in_flight,
                    waiting=driver.started - len(recorder) - driver.in_flight,
                    complete=done.complete,
                    shed=done.shed,
                    failed=done.failed,
                    tokens=done.tokens,
                    ttft_s=recorder.take_recent_ttfts_s(),
                    lag_s=pulse.worst_lag_s,
                )
            )

    def _encode(self, text: str) -> list[int]:
        assert self._tokenizer is not None
        return self._tokenizer.encode(text)

    def _count_tokens(self, text: str) -> int:
        return len(self._encode(text))


def allow_many_connections() -> None:
    """Let this process open as many files as the system allows it to."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard:
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


@contextmanager
def _without_garbage_collection() -> Iterator[None]:
    """A full collection stops the loop for tens of milliseconds; requests leave no cycles."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


def _open(path: str) -> Tokenizer:
    return open_tokenizer(open_checkpoint(Path(path)).vocabulary)
