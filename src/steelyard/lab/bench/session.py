"""A measuring session with one server: introduces itself once, then runs workloads against it.

`run` is one workload, one result. `curve`, `sweep` and `stress` are series of runs and live in
modules of their own; nothing here prints.
"""

import asyncio
import contextlib
import secrets
import tempfile
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field
from pathlib import Path

import msgspec

from steelyard.contract.errors import InvalidRequest
from steelyard.lab.audit import AuditLimits
from steelyard.lab.client import Api, Crew, CrewReport, Extras, Job, Limits, Progress, Share, Target
from steelyard.lab.client.pool import ConnectionPool
from steelyard.lab.client.probe import ServerFacts, find_model, probe, send_once
from steelyard.lab.client.target import resolve
from steelyard.lab.load import (
    CacheState,
    ClosedLoop,
    Plan,
    PromptMaker,
    Workload,
    make_plan,
    new_nonce,
)
from steelyard.lab.machine import MachineWatch, find_server_pid
from steelyard.lab.records import Records
from steelyard.lab.result import RunResult, TargetFacts
from steelyard.lab.server_metrics import MetricsWatch
from steelyard.lab.stats import Slo
from steelyard.lab.summary import RunFacts, summarise_run

__all__ = ["Measured", "Session", "SessionOptions", "Watcher"]

_WARMING_AT_ONCE = 8
_COUNTED_AGAIN = 200
"""Answers of a run that a tokenizer of ours counts again, about."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionOptions:
    """Which server, asked how, by how many clients."""

    url: str
    model: str | None = None
    """None: the first one that the server lists."""
    api: Api = "chat"
    is_streaming: bool = True
    headers: dict[str, str] = field(default_factory=dict)
    body: dict[str, object] = field(default_factory=dict)
    """More parameters of every request."""
    extras: Extras = field(default_factory=lambda: Extras(return_token_ids=True))
    """Those that are tried; what the server refuses is left out."""
    temperature: float = 0.0
    workers: int = 1
    """Client processes."""
    limits: Limits = field(default_factory=Limits)
    tokenizer: Path | None = None
    """Checkpoint whose tokenizer counts answers again. None: nothing does."""
    sends_ids: bool = False
    """Send token ids of that tokenizer instead of text; needs plain completions."""
    is_prompt: bool = True
    """Ask the kernel for real-time priority of the clients."""
    server_pid: int | None = None
    """None: found by the port, when the server runs here."""
    audit: AuditLimits = field(default_factory=AuditLimits)


class Watcher:
    """Hears what a session does; this one ignores it."""

    def on_run(self, name: str, duration_s: float | None) -> None:
        """A run is about to begin. `duration_s` None: the number of its sessions decides."""

    def on_warm(self, prompts: int) -> None:
        """So many prompts are sent before the run, to fill the cache."""

    def on_begin(self, start_s: float) -> None:
        """Time zero of the run, a moment ahead, on the monotonic clock."""

    def on_progress(self, progress: Progress) -> None:
        """From every client process, twice a second."""

    def on_end(self, result: RunResult) -> None:
        """The run is measured and judged."""


@dataclass(frozen=True, slots=True, eq=False)
class Measured:
    """One run."""

    result: RunResult
    records: Records
    plan: Plan


class Session:
    """Make one with `open`. Runs follow each other; `stop` ends the one that is under way."""

    def __init__(
        self, options: SessionOptions, facts: ServerFacts, watcher: Watcher | None = None
    ) -> None:
        """`watcher` None: nobody watches."""
        self.options = options
        self.facts = facts
        self._watcher = watcher or Watcher()
        self.is_stopped = False
        """Whether somebody has called `stop`: series do not go on then."""
        self._crew: Crew | None = None

    @classmethod
    async def open(cls, options: SessionOptions, watcher: Watcher | None = None) -> "Session":
        """Ask the server what it is. Raises `InvalidRequest` when it cannot be measured.

        `watcher` None: nobody watches.
        """
        if options.sends_ids and options.api != "completions":
            raise InvalidRequest(
                "token ids can only be sent to plain completions", fix="add --api completions"
            )
        Target(url=options.url, model="").address  # noqa: B018 - raises for what is no URL
        model, context_tokens = options.model, None
        with contextlib.suppress(InvalidRequest) if model else contextlib.nullcontext():
            listed, context_tokens = await find_model(options.url, options.headers)
            model = model or listed
        assert model is not None
        target = Target(
            url=options.url,
            model=model,
            api=options.api,
            is_streaming=options.is_streaming,
            extras=options.extras,
            temperature=options.temperature,
            body=dict(options.body),
            headers=dict(options.headers),
        )
        facts = await probe(target, context_tokens=context_tokens, nonce=new_nonce())
        return cls(options, facts, watcher)

    async def run(
        self,
        workload: Workload,
        *,
        slo: Slo | None = None,
        name: str = "",
        warm_up_s: float | None = None,
        sheds_on_purpose: bool = False,
        keeps_requests: bool = True,
    ) -> Measured:
        """Run a workload and judge it. Interrupted by `stop`, the result says so.

        `slo` None: every complete answer is good. `warm_up_s` None: found in the data.
        """
        workload = self._fitted(workload)
        plan = make_plan(workload)
        nonce, run_id = new_nonce(), secrets.token_hex(4)
        self._watcher.on_run(name, plan.duration_s)
        if workload.cache is CacheState.WARM:
            await self._warm(workload, plan, nonce)
        watch = MachineWatch(self._server_pid())
        target = self.facts.target
        metrics = MetricsWatch(target.address.url, target.headers)

        def begin(start_s: float) -> None:
            watch.clear()
            self._watcher.on_begin(start_s)

        with tempfile.TemporaryDirectory(prefix="steelyard-bench-") as folder:
            jobs = self._jobs(workload, plan, nonce=nonce, run_id=run_id, folder=Path(folder))
            async with _watching(watch), _watching(metrics):
                crew_report = await self._run_crew(jobs, begin)
        facts = RunFacts(
            run_id=run_id,
            started_unix_s=crew_report.started_unix_s,
            workload=workload,
            plan=plan,
            target=self._target_facts(),
            health=crew_report.health,
            hardware=watch.facts(),
            slo=slo or Slo(),
            name=name,
            warm_up_s=warm_up_s,
            is_interrupted=self.is_stopped,
            sheds_on_purpose=sheds_on_purpose,
            limits=self.options.audit,
            keeps_requests=keeps_requests,
        )
        result = await asyncio.to_thread(summarise_run, crew_report.records, facts)
        measured_s = (crew_report.start_s + s for s in (result.window.begin_s, result.window.end_s))
        said = await metrics.result(*measured_s)
        result = msgspec.structs.replace(result, server_metrics=said)
        self._watcher.on_end(result)
        return Measured(result, crew_report.records, plan)

    def stop(self) -> None:
        """End the run that is under way and keep what it has measured. Safe to repeat."""
        self.is_stopped = True
        if self._crew is not None:
            self._crew.stop()

    async def _run_crew(self, jobs: list[Job], on_begin: Callable[[float], None]) -> CrewReport:
        self._crew = crew = Crew(jobs)
        if self.is_stopped:
            crew.stop()
        try:
            return await crew.run(report=self._watcher.on_progress, on_begin=on_begin)
        finally:
            self._crew = None

    def _jobs(
        self, workload: Workload, plan: Plan, *, nonce: str, run_id: str, folder: Path
    ) -> list[Job]:
        options = self.options
        workers = _workers(workload, options.workers)
        sessions = plan.limit or len(plan.sessions)
        again = max(sessions // _COUNTED_AGAIN, 1) if options.tokenizer is not None else 0
        return [
            Job(
                workload=workload,
                target=self.facts.target,
                nonce=nonce,
                run_id=run_id,
                share=Share(worker, workers),
                scale=self.facts.scale,
                limits=options.limits,
                tokenizer=None if options.tokenizer is None else str(options.tokenizer),
                sends_ids=options.sends_ids,
                count_again_every=again,
                is_prompt=options.is_prompt,
                records_path=str(folder / f"{worker}.npz"),
            )
            for worker in range(workers)
        ]

    def _fitted(self, workload: Workload) -> Workload:
        """With the server's context, unless the workload names one itself."""
        if workload.context_tokens is not None or self.facts.context_tokens is None:
            return workload
        return msgspec.structs.replace(workload, context_tokens=self.facts.context_tokens)

    async def _warm(self, workload: Workload, plan: Plan, nonce: str) -> None:
        """Send every first prompt of the deck once, for a single token."""
        prompts = PromptMaker(
            plan, seed=workload.seed, cache=workload.cache, nonce=nonce, scale=self.facts.scale
        )
        self._watcher.on_warm(len(plan.sessions))
        pool = ConnectionPool(resolve(self.facts.target.address))
        places = asyncio.Semaphore(_WARMING_AT_ONCE)

        async def send(session: int) -> None:
            async with places:
                text = prompts.user_text(session, 0)
                await send_once(pool, self.facts.target, text, 1, request_id=f"warm-{session}")

        try:
            await asyncio.gather(*(send(session) for session in range(len(plan.sessions))))
        finally:
            pool.close()

    def _server_pid(self) -> int | None:
        if self.options.server_pid is not None:
            return self.options.server_pid
        address = self.facts.target.address
        return find_server_pid(address.host, address.port)

    def _target_facts(self) -> TargetFacts:
        facts, target = self.facts, self.facts.target
        return TargetFacts(
            url=target.address.url,
            model=target.model,
            api=target.api,
            server=facts.server,
            version=facts.version,
            context_tokens=facts.context_tokens,
            extras=msgspec.structs.asdict(target.extras),
            counts_tokens=facts.counts_tokens,
            scale=facts.scale,
        )


def _workers(workload: Workload, wanted: int) -> int:
    """No more than there are places to share out."""
    arrivals = workload.arrivals
    places = arrivals.concurrency if isinstance(arrivals, ClosedLoop) else arrivals.concurrency_cap
    return max(min(wanted, places or wanted), 1)


@contextlib.asynccontextmanager
async def _watching(watch: MachineWatch | MetricsWatch) -> AsyncIterator[None]:
    task = asyncio.create_task(watch.run())
    try:
        yield
    finally:
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task
