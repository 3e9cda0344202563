"""A client process: does one job and ends. Started by `crew`, spoken to in lines (`job`).

    python -m steelyard.lab.client.worker < messages > messages

Ends with its parent: when its standard input closes, it stops as if told to.
"""

import asyncio
import sys
from pathlib import Path

import msgspec
import uvloop

from steelyard.contract.errors import SteelyardError
from steelyard.lab.client.job import (
    Begin,
    Failed,
    Finished,
    FromClient,
    Job,
    Ready,
    Stop,
    ToClient,
)
from steelyard.lab.client.observation import Observation
from steelyard.lab.mock.priority import run_promptly
from steelyard.lab.records import save_records

__all__ = ["main"]

_MAX_LINE_BYTES = 16 * 1024 * 1024
_DECODER = msgspec.json.Decoder(ToClient)


def main() -> None:
    """Speak with the parent until the job is done."""
    try:
        uvloop.run(_work())
    except SteelyardError as error:
        _tell(Failed(str(error)))
        sys.exit(1)


async def _work() -> None:
    lines = await _standard_input()
    job = await _next(lines)
    if not isinstance(job, Job):
        return
    observation = Observation(job)
    observation.prepare()
    _tell(Ready())
    begin = await _next(lines)
    if not isinstance(begin, Begin):
        return
    if job.is_prompt:
        run_promptly()
    listening = asyncio.create_task(_stop_when_told(lines, observation))
    try:
        observed = await observation.run(begin.start_s, report=_tell)
    finally:
        listening.cancel()
    save_records(observed.records, Path(job.records_path))
    _tell(Finished(observed.health))


async def _stop_when_told(lines: asyncio.StreamReader, observation: Observation) -> None:
    await _next(lines)  # only `Stop` can come now, or the end
    observation.stop()


async def _next(lines: asyncio.StreamReader) -> Job | Begin | Stop | None:
    """The next message; None when the parent has gone."""
    line = await lines.readline()
    return _DECODER.decode(line) if line else None


async def _standard_input() -> asyncio.StreamReader:
    loop = asyncio.get_running_loop()
    lines = asyncio.StreamReader(limit=_MAX_LINE_BYTES)
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(lines), sys.stdin)
    return lines


def _tell(message: FromClient) -> None:
    """Blocks when the parent does not read, which it always does."""
    sys.stdout.buffer.write(msgspec.json.encode(message) + b"\n")
    sys.stdout.buffer.flush()


if __name__ == "__main__":
    main()
