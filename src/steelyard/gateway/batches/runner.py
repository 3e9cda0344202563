"""Works through the lines of open batches.

    validating → in_progress → completed           every line has its result
               ↘ failed         ↘ expired          the rest is put down as not done
                 cancelling → cancelled

A line's result is written down as soon as it is there; after a restart, lines without one run
(again). A line that is refused for lack of room waits and tries again, as long as its batch
lives; one whose engine fails is tried a few times.
"""

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Mapping

from steelyard.contract import Clock
from steelyard.contract.errors import InternalError, SteelyardError
from steelyard.gateway.batches.archive import Archive, new_id
from steelyard.gateway.batches.ledger import Ledger, LineResult
from steelyard.gateway.batches.line_call import LineCall, caller_of_batch
from steelyard.gateway.batches.lines import NumberedLine, answered, parse_line, undone
from steelyard.gateway.batches.objects import BatchErrors, BatchRecord, Ending
from steelyard.gateway.errors import Refusal, explain
from steelyard.gateway.http import Call

__all__ = ["BatchRunner", "LineHandler"]

_log = logging.getLogger(__name__)

LineHandler = Callable[[Call], Awaitable[None]]

_FINAL = frozenset({400, 403, 404, 413, 422})
"""Statuses that another try would not change."""

_TRIES = 3
"""Of a line whose engine fails."""

_DISK_DELAY_S = 30.0
"""Before a batch is taken up again whose files could not be read or written."""


class BatchRunner:
    """Runs lines of all batches, taking turns, `concurrency` at a time."""

    def __init__(
        self, archive: Archive, clock: Clock, now: Callable[[], float] = time.time
    ) -> None:
        """`now` is the wall clock; `clock` waits."""
        self._archive = archive
        self._clock = clock
        self._now = now
        self._endpoints: Mapping[str, LineHandler] = {}
        self._places = asyncio.Semaphore(archive.config.concurrency)
        self._running: dict[str, asyncio.Event] = {}
        """Batches that are being worked on; set: to be cancelled."""
        self._news = asyncio.Event()

    def adopt(self, endpoints: Mapping[str, LineHandler]) -> None:
        """What answers lines, by their url, from now on."""
        self._endpoints = endpoints

    def look(self) -> None:
        """The ledger has changed: a batch is new, or is to be cancelled."""
        self._news.set()

    async def run(self) -> None:
        """Work until cancelled."""
        async with asyncio.TaskGroup() as group:
            while True:
                self._news.clear()
                for record in await self._open_batches():
                    cancelled = self._running.get(record.batch.id)
                    if cancelled is None:
                        self._running[record.batch.id] = asyncio.Event()
                        group.create_task(self._keep(record))
                    elif record.batch.status == "cancelling":
                        cancelled.set()
                await self._news.wait()

    async def _open_batches(self) -> list[BatchRecord]:
        while True:
            try:
                return await self._archive.call(Ledger.open_batches)
            except InternalError as error:
                _log.error("batches wait: %s", error)
                await self._clock.sleep(_DISK_DELAY_S)

    async def _keep(self, record: BatchRecord) -> None:
        """Work on one batch; when that fails, as disks do, later again."""
        batch_id = record.batch.id
        try:
            await self._work(record)
        except* Exception as errors:  # noqa: BLE001  the edge of a batch: others go on
            _log.error("batch %s waits", batch_id, exc_info=errors)
            await self._clock.sleep(_DISK_DELAY_S)
        finally:
            del self._running[batch_id]
            self._news.set()

    async def _work(self, record: BatchRecord) -> None:
        """Validate, run, end."""
        if record.batch.in_progress_at is None:  # also one that is to be cancelled
            valid = await self._validate(record)
            if valid is None:
                return
            record = valid
        how: Ending = "cancelled"
        if record.batch.status == "in_progress":
            how = await self._run_lines(record)
        await self._end(record, how)

    async def _validate(self, record: BatchRecord) -> BatchRecord | None:
        """The record with the number of its lines; None when the input is not valid."""
        batch = record.batch
        found = await self._archive.validate(batch.input_file_id, batch.endpoint)
        now = int(self._now())
        if found.errors:
            errors = BatchErrors(found.errors)
            await self._archive.call(Ledger.fail, batch.id, errors, now)
            return None
        return await self._archive.call(Ledger.begin, batch.id, found.lines, now)

    async def _run_lines(self, record: BatchRecord) -> Ending:
        """How it ended."""
        left_s = record.batch.expires_at - self._now()
        every = asyncio.create_task(self._run_all(record))
        expiry = asyncio.create_task(self._clock.sleep(max(left_s, 0.0)))
        cancelled = asyncio.create_task(self._running[record.batch.id].wait())
        try:
            await asyncio.wait((every, expiry, cancelled), return_when=asyncio.FIRST_COMPLETED)
            if every.done():
                every.result()
                return "completed"
            return "cancelled" if cancelled.done() else "expired"
        finally:
            for task in (every, expiry, cancelled):
                task.cancel()
            await asyncio.wait((every, expiry, cancelled))

    async def _run_all(self, record: BatchRecord) -> None:
        done = await self._archive.call(Ledger.finished_lines, record.batch.id)
        # So many lines of this batch are in memory, running or waiting to be tried again.
        own_places = asyncio.Semaphore(self._archive.config.concurrency)
        async with asyncio.TaskGroup() as group:
            async for line in self._archive.lines(record.batch.input_file_id):
                if line.number not in done:
                    await own_places.acquire()
                    task = group.create_task(self._run_line(record, line))
                    task.add_done_callback(lambda _: own_places.release())

    async def _run_line(self, record: BatchRecord, line: NumberedLine) -> None:
        request_id = new_id("")
        status, body = await self._answer(record, line, request_id)
        result = answered(line, request_id=request_id, status=status, body=body)
        await self._archive.call(Ledger.add_results, record.batch.id, (result,))

    async def _answer(
        self, record: BatchRecord, line: NumberedLine, request_id: str
    ) -> tuple[int, bytes]:
        """Status and body of the answer that stays."""
        body = bytes(parse_line(line.raw).body)
        tries = 0
        while True:
            async with self._places:  # first come, first served: batches take turns
                call = LineCall(body, caller_of_batch(record))
                refusal = await self._try(record.batch.endpoint, call, request_id)
            if refusal is None:
                assert call.answer is not None, "an endpoint answers or raises"
                return call.answer.status, call.answer.body
            if refusal.retry_after_s is None:
                tries += 1
            if refusal.status in _FINAL or tries == _TRIES:
                return refusal.status, refusal.body
            await self._clock.sleep(refusal.retry_after_s or 1.0)

    async def _try(self, endpoint: str, call: LineCall, request_id: str) -> Refusal | None:
        """None when it was answered."""
        try:
            await self._endpoints[endpoint](call)
        except Refusal as refusal:
            return refusal
        except SteelyardError as error:
            _log.debug("line %s: %s: %s", request_id, error.code, error)
            return explain(error)
        except Exception:  # noqa: BLE001  the edge of a request: a bug costs one line
            _log.exception("line %s", request_id)
            return explain(InternalError("the line failed"))
        return None

    async def _end(self, record: BatchRecord, how: Ending) -> None:
        def put_down(line: NumberedLine) -> LineResult:
            return undone(line, new_id(""), f"batch_{how}", f"The batch was {how} before its turn.")

        rest = None if how == "completed" else put_down
        await self._archive.end_batch(record.batch.id, how, int(self._now()), rest)
