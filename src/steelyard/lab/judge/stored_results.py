"""Results of any kind as one type: reading them, their runs, their time."""

from pathlib import Path

import msgspec

from steelyard.contract.errors import InvalidRequest
from steelyard.lab.result import SCHEMA, RunResult
from steelyard.lab.series import Curve, Repeats, Series, Stress, Sweep

__all__ = [
    "Result",
    "decode_result",
    "read_any_result",
    "result_kind",
    "runs_of",
    "started_unix_s",
]

Result = RunResult | Curve | Sweep | Stress | Repeats


def read_any_result(path: Path) -> Result:
    """Raises `InvalidRequest` when the file holds none, or one without a run."""
    try:
        data = path.read_bytes()
    except OSError as error:
        raise InvalidRequest(error.strerror or str(error), param=str(path)) from error
    return decode_result(data, where=str(path))


def decode_result(data: bytes, *, where: str) -> Result:
    """`where` is named when it holds no result: `InvalidRequest`."""
    try:
        schema = msgspec.json.decode(data, type=_Tagged).schema
        result: Result = (
            msgspec.json.decode(data, type=RunResult)
            if schema == SCHEMA
            else msgspec.json.decode(data, type=Series)
        )
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise InvalidRequest(f"holds no result: {error}", param=where) from error
    if not runs_of(result):
        raise InvalidRequest("holds no run", param=where)
    return result


def result_kind(result: Result) -> str:
    """`run`, `curve`, `sweep`, `stress` or `repeats`."""
    return "run" if isinstance(result, RunResult) else type(result).__name__.lower()


def runs_of(result: Result) -> list[RunResult]:
    """All runs, in the order in which they were made."""
    return [result] if isinstance(result, RunResult) else list(result.runs)


def started_unix_s(result: Result) -> float:
    """When the first run began."""
    return min(run.started_unix_s for run in runs_of(result))


class _Tagged(msgspec.Struct):
    schema: str
