"""Readers of recorded traffic and prompt files. They read; `plan` decides what becomes of it."""

import csv
import gzip
import io
import zlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated

import msgspec
import numpy as np
import numpy.typing as npt

from steelyard.contract.errors import InvalidRequest

__all__ = ["MOONCAKE_BLOCK_TOKENS", "Trace", "read_azure", "read_mooncake", "read_prompts"]

MOONCAKE_BLOCK_TOKENS = 512
"""Tokens that one hash id stands for; the last one of a request may stand for fewer."""

_MOST_TOKENS = 2**31 - 1
"""Of one request: no model comes near, and sums still fit the columns."""

Ints = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True, eq=False)
class Trace:
    """Requests in order of their times; all columns are equally long."""

    times_s: npt.NDArray[np.float64]
    """Since the first request."""
    input_tokens: Ints
    output_tokens: Ints
    blocks: tuple[tuple[int, ...], ...] | None = None
    """Hash ids of each prompt; None when the trace has none."""

    def __len__(self) -> int:
        return len(self.times_s)

    def between(self, start_s: float, end_s: float) -> "Trace":
        """Requests of the half-open interval, whose start becomes time zero."""
        low, high = np.searchsorted(self.times_s, [start_s, end_s])
        return Trace(
            self.times_s[low:high] - start_s,
            self.input_tokens[low:high],
            self.output_tokens[low:high],
            None if self.blocks is None else self.blocks[low:high],
        )


def read_azure(path: Path) -> Trace:
    """Raises `InvalidRequest` naming the line that cannot be read."""
    rows = []
    try:
        for number, row in enumerate(csv.DictReader(_text_lines(path)), start=2):
            try:
                rows.append(_azure_row(row))
            except (KeyError, ValueError, TypeError) as error:
                raise _unreadable(path, number, error) from error
    except csv.Error as error:
        raise InvalidRequest(f"holds no CSV: {error}", param=str(path)) from error
    return _trace(path, rows, None)


def read_mooncake(path: Path) -> Trace:
    """Raises `InvalidRequest` naming the line that cannot be read."""
    decoder = msgspec.json.Decoder(_MooncakeRow)
    rows, blocks = [], []
    for number, line in _lines(path):
        try:
            row = decoder.decode(line)
        except (msgspec.MsgspecError, RecursionError) as error:
            raise _unreadable(path, number, error) from error
        if len(row.hash_ids) != -(-row.input_length // MOONCAKE_BLOCK_TOKENS):
            raise _unreadable(path, number, f"{len(row.hash_ids)} hash ids do not fit the length")
        rows.append((row.timestamp / 1000, row.input_length, max(row.output_length, 1)))
        blocks.append(row.hash_ids)
    return _trace(path, rows, blocks)


def read_prompts(path: Path) -> list[tuple[str, ...]]:
    """The user's turns of every conversation in the file.

    Raises `InvalidRequest` naming the line that cannot be read.
    """
    is_json = {".jsonl", ".json"} & set(path.suffixes)
    found: list[tuple[str, ...]] = []
    for number, line in _lines(path):
        if not is_json:
            found.append((line,))
            continue
        try:
            row = msgspec.json.decode(line, type=_PromptRow)
        except (msgspec.MsgspecError, RecursionError) as error:
            raise _unreadable(path, number, error) from error
        turns = row.turns or ((row.prompt,) if row.prompt else ())
        if not turns:
            raise _unreadable(path, number, "neither `turns` nor `prompt`")
        found.append(turns)
    if not found:
        raise InvalidRequest("holds no prompts", param=str(path))
    return found


class _MooncakeRow(msgspec.Struct):
    timestamp: float
    input_length: Annotated[int, msgspec.Meta(ge=1, le=_MOST_TOKENS)]
    output_length: Annotated[int, msgspec.Meta(ge=0, le=_MOST_TOKENS)]
    hash_ids: tuple[int, ...]


class _PromptRow(msgspec.Struct):
    turns: tuple[str, ...] = ()
    prompt: str = ""


def _azure_row(row: Mapping[str, str]) -> tuple[float, int, int]:
    moment = datetime.fromisoformat(row["TIMESTAMP"])
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=UTC)  # only differences count: no local clock changes
    prompt, output = int(row["ContextTokens"]), int(row["GeneratedTokens"])
    if not (1 <= prompt <= _MOST_TOKENS and 0 <= output <= _MOST_TOKENS):
        raise ValueError(f"lengths must be between 1 and {_MOST_TOKENS}")
    return moment.timestamp(), prompt, max(output, 1)


def _trace(
    path: Path, rows: list[tuple[float, int, int]], blocks: list[tuple[int, ...]] | None
) -> Trace:
    if not rows:
        raise InvalidRequest("holds no requests", param=str(path))
    times = np.array([row[0] for row in rows])
    order = np.argsort(times, kind="stable")
    return Trace(
        times[order] - times[order[0]],
        np.array([row[1] for row in rows], dtype=np.int64)[order],
        np.array([row[2] for row in rows], dtype=np.int64)[order],
        None if blocks is None else tuple(blocks[i] for i in order),
    )


def _lines(path: Path) -> Iterator[tuple[int, str]]:
    """Lines that are not empty, with their numbers."""
    for number, line in enumerate(_text_lines(path), start=1):
        if text := line.strip():
            yield number, text


def _text_lines(path: Path) -> Iterator[str]:
    """Raises `InvalidRequest` for what cannot be read to its end: damaged, cut short, no text."""
    try:
        with _open_text(path) as lines:
            yield from lines
    except OSError as error:
        raise InvalidRequest(error.strerror or str(error), param=str(path)) from error
    except (EOFError, zlib.error, UnicodeDecodeError) as error:
        raise InvalidRequest(f"cannot be read: {error}", param=str(path)) from error


def _open_text(path: Path) -> io.TextIOBase:
    if path.suffix == ".gz":
        return io.TextIOWrapper(gzip.open(path), encoding="utf-8")
    return path.open(encoding="utf-8", newline="")


def _unreadable(path: Path, number: int, why: object) -> InvalidRequest:
    return InvalidRequest(f"line {number}: {why}", param=str(path))
