"""Runs the client processes of one measurement: starts them together, follows them, collects.

The parent draws progress and samples hardware while clients do nothing but measure. A client that
dies takes its share of the records with it, so the run fails then.
"""

import asyncio
import contextlib
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import msgspec

from steelyard.contract.errors import InternalError, InvalidRequest
from steelyard.lab.client.job import (
    Begin,
    Failed,
    Finished,
    FromClient,
    Job,
    Progress,
    Ready,
    Stop,
    ToClient,
)
from steelyard.lab.client.pulse import ClientHealth
from steelyard.lab.records import Records, load_records, merge_records

__all__ = ["Crew", "CrewReport"]

_MAX_LINE_BYTES = 64 * 1024 * 1024
_PREPARE_S = 300.0
_LEAD_S = 0.25
"""Between the last client's `Ready` and time zero, so that all of them hear of it."""
_END_S = 5.0
_DECODER = msgspec.json.Decoder(FromClient)


@dataclass(frozen=True, slots=True, eq=False)
class CrewReport:
    """What all clients have seen."""

    records: Records
    health: tuple[ClientHealth, ...]
    start_s: float
    """Time zero on the monotonic clock."""
    started_unix_s: float


class Crew:
    """One measurement. `run` once; `stop` ends it early and keeps what was measured."""

    def __init__(self, jobs: Sequence[Job]) -> None:
        """One process per job. Their `records_path` must be files of their own."""
        self._jobs = jobs
        self._members: list[_Member] = []
        self._stop_asked = False

    async def run(
        self,
        *,
        report: Callable[[Progress], None] | None = None,
        on_begin: Callable[[float], None] | None = None,
    ) -> CrewReport:
        """The merged records. Raises `InvalidRequest` for a job that cannot be done.

        `report` gets progress, `on_begin` the time zero as soon as it is known. None: nobody does.
        """
        self._members = [await _Member.start(job) for job in self._jobs]
        try:
            async with asyncio.timeout(_PREPARE_S):
                await asyncio.gather(*(member.ready() for member in self._members))
            start_s = time.monotonic() + _LEAD_S
            started_unix_s = time.time() + _LEAD_S
            if on_begin is not None:
                on_begin(start_s)
            for member in self._members:
                member.tell(Begin(start_s))
                if self._stop_asked:
                    member.tell(Stop())
            health = await asyncio.gather(*(m.finished(report) for m in self._members))
        finally:
            await asyncio.gather(*(member.end() for member in self._members))
        parts = [load_records(Path(job.records_path)) for job in self._jobs]
        return CrewReport(merge_records(parts), tuple(health), start_s, started_unix_s)

    def stop(self) -> None:
        """See the class. Safe to repeat."""
        self._stop_asked = True
        for member in self._members:
            member.tell(Stop())


class _Member:
    """One client process."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self._process = process
        assert process.stdin is not None
        assert process.stdout is not None
        self._input = process.stdin
        self._output = process.stdout

    @classmethod
    async def start(cls, job: Job) -> "_Member":
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            "-m",
            "steelyard.lab.client.worker",
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            limit=_MAX_LINE_BYTES,
            start_new_session=True,  # Ctrl-C is for the parent, which then tells its clients
        )
        member = cls(process)
        member.tell(job)
        return member

    def tell(self, message: ToClient) -> None:
        with contextlib.suppress(OSError):  # one that has gone is noticed by whoever waits for it
            self._input.write(msgspec.json.encode(message) + b"\n")

    async def ready(self) -> None:
        while not isinstance(await self._next(), Ready):
            pass

    async def finished(self, report: Callable[[Progress], None] | None) -> ClientHealth:
        while True:
            message = await self._next()
            if isinstance(message, Finished):
                return message.health
            if isinstance(message, Progress) and report is not None:
                report(message)

    async def end(self) -> None:
        """Wait for its end, and help it if it has none."""
        self._input.close()
        try:
            async with asyncio.timeout(_END_S):
                await self._process.wait()
        except TimeoutError:
            self._process.kill()
            await self._process.wait()

    async def _next(self) -> FromClient:
        line = await self._output.readline()
        if not line:
            status = await self._process.wait()
            raise InternalError(f"a client process ended with status {status}")
        message = _DECODER.decode(line)
        if isinstance(message, Failed):
            raise InvalidRequest(message.message)
        return message
