"""Lines of a batch's input and of its results, as OpenAI writes them.

Reading and judging only; what the body of a line may hold is judged when it runs, like that of
any other request.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import msgspec

from steelyard.gateway.batches.ledger import LineResult
from steelyard.gateway.batches.objects import BatchError

__all__ = [
    "CHAT",
    "ENDPOINTS",
    "TEXT",
    "InputLine",
    "NumberedLine",
    "Validation",
    "answered",
    "numbered_lines",
    "parse_line",
    "undone",
    "validate",
]

CHAT = "/v1/chat/completions"
TEXT = "/v1/completions"

ENDPOINTS = (CHAT, TEXT)
"""Where lines may go."""

_MAX_ERRORS = 32
"""Reported of one file; more help nobody."""


class InputLine(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One request."""

    custom_id: Annotated[str, msgspec.Meta(min_length=1, max_length=512)]
    method: str
    url: str
    body: msgspec.Raw


@dataclass(frozen=True, slots=True)
class NumberedLine:
    """A line as it stands in the file."""

    number: int
    """From 1; empty lines count, but are skipped."""
    raw: bytes


@dataclass(frozen=True, slots=True)
class Validation:
    """What is to be said of a whole input."""

    lines: int
    errors: tuple[BatchError, ...]


def numbered_lines(path: Path, line_bytes: int) -> Iterator[NumberedLine]:
    """All lines but empty ones. One that is too long comes cut, longer than `line_bytes`, and is
    the last."""
    with path.open("rb") as file:
        number = 0
        while line := file.readline(line_bytes + 2):
            number += 1
            if len(line) > line_bytes and not line.endswith(b"\n"):
                yield NumberedLine(number, line)
                return
            if raw := line.strip():
                yield NumberedLine(number, raw)


def parse_line(raw: bytes) -> InputLine:
    """Raises `msgspec.DecodeError` or `UnicodeDecodeError`."""
    return _INPUT.decode(raw)


def validate(path: Path, endpoint: str, *, line_bytes: int, max_lines: int) -> Validation:
    """Read all of it once. Blocking."""
    errors: list[BatchError] = []
    seen: set[str] = set()
    count = 0
    for line in numbered_lines(path, line_bytes):
        count += 1
        error = _too_much(line, count, line_bytes, max_lines) or _judge(line, endpoint, seen)
        if error is not None:
            errors.append(error)
        if count > max_lines or len(errors) == _MAX_ERRORS:
            break
    if count == 0:
        errors.append(_error("empty_file", "the file has no lines", None))
    return Validation(count, tuple(errors))


def answered(line: NumberedLine, *, request_id: str, status: int, body: bytes) -> LineResult:
    """The result of a line that has run."""
    record = _Result(
        id=f"batch_req_{request_id}",
        custom_id=parse_line(line.raw).custom_id,
        response=_Response(status, request_id, msgspec.Raw(body)),
    )
    return LineResult(line.number, status != 200, msgspec.json.encode(record))


def undone(line: NumberedLine, request_id: str, code: str, message: str) -> LineResult:
    """The result of a line that never got an answer."""
    record = _Result(
        id=f"batch_req_{request_id}",
        custom_id=parse_line(line.raw).custom_id,
        error=_Undone(code, message),
    )
    return LineResult(line.number, True, msgspec.json.encode(record))


def _too_much(line: NumberedLine, count: int, line_bytes: int, max_lines: int) -> BatchError | None:
    if count > max_lines:
        return _error("too_many_lines", f"there are more than {max_lines} lines", line.number)
    if len(line.raw) > line_bytes:
        return _error("line_too_long", f"the line has more than {line_bytes} bytes", line.number)
    return None


def _judge(line: NumberedLine, endpoint: str, seen: set[str]) -> BatchError | None:
    try:
        parsed = parse_line(line.raw)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        return _error("invalid_json_line", f"the line is no request: {error}", line.number)
    if parsed.custom_id in seen:
        return _error("duplicate_custom_id", "its custom_id occurs twice", line.number, "custom_id")
    seen.add(parsed.custom_id)
    if parsed.method != "POST":
        return _error("invalid_method", "its method must be POST", line.number, "method")
    if parsed.url != endpoint:
        return _error("invalid_url", f"its url must be {endpoint}", line.number, "url")
    return None


def _error(code: str, message: str, line: int | None, param: str | None = None) -> BatchError:
    return BatchError(code=code, message=message, line=line, param=param)


class _Response(msgspec.Struct):
    status_code: int
    request_id: str
    body: msgspec.Raw


class _Undone(msgspec.Struct):
    code: str
    message: str


class _Result(msgspec.Struct, kw_only=True):
    id: str
    custom_id: str
    response: _Response | None = None
    error: _Undone | None = None


_INPUT = msgspec.json.Decoder(InputLine)
