"""Frames on a byte stream: a 4-byte big-endian length, then one msgpack message.

Sizes are bounded on both sides and types are closed unions (`wire`), so a hostile peer can make
us close its connection and nothing else. Pickle is never used.
"""

import struct
from typing import Generic, TypeVar

import msgspec

from steelyard.contract.errors import ProtocolError
from steelyard.contract.wire import Command, Event

__all__ = ["MAX_FRAME_BYTES", "FrameDecoder", "command_decoder", "encode_frame", "event_decoder"]

MAX_FRAME_BYTES = 16 * 1024 * 1024
"""A million-token prompt is about 5 MB; anything larger is a broken or hostile peer."""

_LENGTH = struct.Struct(">I")
_ENCODER = msgspec.msgpack.Encoder()

MessageT = TypeVar("MessageT")


def encode_frame(message: msgspec.Struct) -> bytes:
    """One complete frame. Raises `ProtocolError` when it would exceed `MAX_FRAME_BYTES`."""
    body = _ENCODER.encode(message)
    if len(body) > MAX_FRAME_BYTES:
        raise ProtocolError(f"a message of {len(body)} bytes exceeds the limit {MAX_FRAME_BYTES}")
    return _LENGTH.pack(len(body)) + body


class FrameDecoder(Generic[MessageT]):
    """Cuts a byte stream into messages; keeps an incomplete tail for the next `feed`."""

    def __init__(self, body: "msgspec.msgpack.Decoder[MessageT]") -> None:
        self._body = body
        self._buffer = bytearray()

    def feed(self, data: bytes) -> list[MessageT]:
        """The messages completed by `data`, in order.

        Raises `ProtocolError` on an over-long frame or a malformed message; the decoder is then
        unusable and the connection must be closed.
        """
        buffer = self._buffer
        buffer += data
        messages: list[MessageT] = []
        at = 0
        while len(buffer) - at >= _LENGTH.size:
            (length,) = _LENGTH.unpack_from(buffer, at)
            if length > MAX_FRAME_BYTES:
                raise ProtocolError(f"a frame of {length} bytes exceeds {MAX_FRAME_BYTES}")
            end = at + _LENGTH.size + length
            if len(buffer) < end:
                break
            # A copy, because the decoder may keep views and the buffer is cut below.
            body = bytes(memoryview(buffer)[at + _LENGTH.size : end])
            at = end
            try:
                messages.append(self._body.decode(body))
            except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
                raise ProtocolError(f"malformed message: {error}") from error
        del buffer[:at]
        return messages


def command_decoder() -> FrameDecoder[Command]:
    """Decodes what clients send to an engine."""
    return FrameDecoder(msgspec.msgpack.Decoder(Command))


def event_decoder() -> FrameDecoder[Event]:
    """Decodes what an engine sends to its clients."""
    return FrameDecoder(msgspec.msgpack.Decoder(Event))
