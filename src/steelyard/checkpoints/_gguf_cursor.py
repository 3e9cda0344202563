"""Walks the little-endian bytes of a GGUF head, checking every step against the file's real size.

The file is read in pieces as the walk goes on, never mapped: a mapped file that shrinks under its
reader kills the process with SIGBUS. Which fields there are is `gguf_file`'s business.
"""

import struct
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from steelyard.checkpoints._reading import damaged

__all__ = ["MAX_METADATA_BYTES", "GGUFArray", "GGUFCursor", "GGUFScalar"]

MAX_METADATA_BYTES = 256 * 1024 * 1024
"""A vocabulary of 262,144 tokens with its merges takes about 15 MB."""

_PIECE_BYTES = 1024 * 1024
_U32 = struct.Struct("<I")
_U64 = struct.Struct("<Q")
_BOOL = 7
_STRING = 8
_ARRAY = 9
_NUMBER_FORMATS = {
    0: "B",
    1: "b",
    2: "H",
    3: "h",
    4: "I",
    5: "i",
    6: "f",
    10: "Q",
    11: "q",
    12: "d",
}

GGUFScalar = int | float | bool | str


@dataclass(frozen=True, slots=True)
class GGUFArray:
    """A list field, still encoded: most readers need none of the long ones."""

    element_type: int
    count: int
    data: bytes

    @property
    def holds_strings(self) -> bool:
        return self.element_type == _STRING

    def strings(self, path: Path, key: str) -> list[str]:
        """Decode texts; `path` and `key` are for the error. Lengths were checked by the walk."""
        data, at = self.data, 0
        values = []
        try:
            for _ in range(self.count):
                (length,) = _U64.unpack_from(data, at)
                at += _U64.size
                values.append(data[at : at + length].decode())
                at += length
        except UnicodeDecodeError as error:
            raise damaged(path, f"{key}[{len(values)}] is not valid UTF-8") from error
        return values

    def numbers(self) -> list[int | float | bool]:
        """Decode numbers or truth values."""
        if self.element_type == _BOOL:
            return [byte != 0 for byte in self.data]
        return list(struct.unpack(f"<{self.count}{_NUMBER_FORMATS[self.element_type]}", self.data))


class GGUFCursor:
    """A position in the head. Every method raises `CheckpointError` when the file ends too soon."""

    def __init__(self, source: BinaryIO, path: Path, size_bytes: int) -> None:
        self._source = source
        self._path = path
        self._size_bytes = size_bytes
        self._buffer = bytearray()
        self._at = 0

    @property
    def at(self) -> int:
        """Bytes walked so far."""
        return self._at

    def take(self, count: int, what: str) -> bytes:
        """The next `count` bytes."""
        start = self._at
        self._advance(count, what)
        return bytes(self._buffer[start : self._at])

    def u32(self, what: str) -> int:
        self._advance(_U32.size, what)
        return int(_U32.unpack_from(self._buffer, self._at - _U32.size)[0])

    def u64(self, what: str) -> int:
        self._advance(_U64.size, what)
        return int(_U64.unpack_from(self._buffer, self._at - _U64.size)[0])

    def text(self, what: str, limit_bytes: int = MAX_METADATA_BYTES) -> str:
        """A length-prefixed UTF-8 text."""
        length = self.u64(f"the length of {what}")
        if length > limit_bytes:
            raise damaged(self._path, f"{what} claims {length} bytes, the limit is {limit_bytes}")
        try:
            return self.take(length, what).decode()
        except UnicodeDecodeError as error:
            raise damaged(self._path, f"{what} is not valid UTF-8") from error

    def value(self, value_type: int, what: str) -> GGUFScalar | GGUFArray:
        """A value of the given GGUF type."""
        if value_type == _STRING:
            return self.text(what)
        if value_type == _ARRAY:
            return self._array(what)
        if value_type == _BOOL:
            return self.take(1, what) != b"\0"
        number: int | float = struct.unpack(
            self._number_format(value_type, what), self.take(self._width(value_type, what), what)
        )[0]
        return number

    def _array(self, what: str) -> GGUFArray:
        element_type = self.u32(f"the element type of {what}")
        count = self.u64(f"the length of {what}")
        start = self._at
        if element_type == _STRING:
            self._skip_strings(count, what)
        else:
            # Nested lists are in the specification and in no model: refused with unknown types.
            self._advance(count * self._width(element_type, what), what)
        return GGUFArray(element_type, count, bytes(self._buffer[start : self._at]))

    def _skip_strings(self, count: int, what: str) -> None:
        """The walk over a vocabulary: up to a few hundred thousand rounds, so kept bare."""
        if count * _U64.size > self._size_bytes - self._at:
            raise damaged(self._path, f"{what} claims {count} texts, more than the file can hold")
        at, have, unpack = self._at, len(self._buffer), _U64.unpack_from
        for _ in range(count):
            if at + _U64.size > have:
                self._fill(at + _U64.size, what)
                have = len(self._buffer)
            at += _U64.size + unpack(self._buffer, at)[0]
        self._fill(at, what)
        self._at = at

    def _width(self, value_type: int, what: str) -> int:
        if value_type == _BOOL:
            return 1
        return struct.calcsize(self._number_format(value_type, what))

    def _number_format(self, value_type: int, what: str) -> str:
        if value_type not in _NUMBER_FORMATS:
            raise damaged(self._path, f"{what} has the unknown type {value_type}")
        return f"<{_NUMBER_FORMATS[value_type]}"

    def _advance(self, count: int, what: str) -> None:
        self._fill(self._at + count, what)
        self._at += count

    def _fill(self, end: int, what: str) -> None:
        """Have at least `end` bytes in the buffer."""
        if end > self._size_bytes:
            raise damaged(
                self._path, f"{what} needs {end} bytes, the file ends after {self._size_bytes}"
            )
        if end > MAX_METADATA_BYTES:
            raise damaged(self._path, f"{what} lies beyond {MAX_METADATA_BYTES} bytes of metadata")
        while len(self._buffer) < end:
            piece = self._source.read(max(_PIECE_BYTES, end - len(self._buffer)))
            if not piece:
                raise damaged(self._path, f"the file shrank while {what} was read")
            self._buffer += piece
