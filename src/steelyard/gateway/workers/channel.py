"""Questions and answers, both ways, over one connection.

Knows nothing of what is asked: a handler answers each question in a task of its own, so that a
slow one holds up no other. Both ends are processes of ours; one that sends garbage is cut off.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import cast

import msgspec

from steelyard.contract.codec import FrameDecoder, encode_frame
from steelyard.contract.errors import (
    EngineLost,
    InternalError,
    ProtocolError,
    SteelyardError,
    from_info,
    to_info,
)
from steelyard.gateway.workers.messages import Envelope, Message

__all__ = ["Answer", "Channel"]

_log = logging.getLogger(__name__)

Answer = Callable[[Message], Awaitable[Message]]
"""Raises an error of the tree for what cannot be done; it is raised again by whoever has asked."""


class Channel(asyncio.Protocol):
    """One end of a connection."""

    def __init__(self, answer: Answer) -> None:
        self._answer = answer
        self._decoder = FrameDecoder(msgspec.msgpack.Decoder(Envelope))
        self._transport: asyncio.Transport | None = None
        self._asked: dict[int, asyncio.Future[Message]] = {}
        self._last_number = 0
        self._answering: set[asyncio.Task[None]] = set()
        self.lost: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        """Done when the connection is gone."""

    async def ask(self, message: Message, *, timeout_s: float) -> Message:
        """The answer. Raises `EngineLost`, or the error that the other process answers with."""
        if self.lost.done():
            raise EngineLost("the other process is gone")
        self._last_number += 1
        number = self._last_number
        answer: asyncio.Future[Message] = asyncio.get_running_loop().create_future()
        self._asked[number] = answer
        self._send(Envelope(number, message=message))
        try:
            async with asyncio.timeout(timeout_s):
                return await answer
        except TimeoutError as error:
            raise EngineLost(f"the other process has not answered for {timeout_s:g} s") from error
        finally:
            del self._asked[number]

    def close(self) -> None:
        """Break the connection. Safe to repeat."""
        if self._transport is not None:
            self._transport.abort()

    # The event loop calls the following.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)

    def data_received(self, data: bytes) -> None:
        try:
            envelopes = self._decoder.feed(data)
        except ProtocolError as error:
            _log.error("a worker's connection is cut: %s", error)
            self.close()
            return
        for envelope in envelopes:
            if envelope.is_answer:
                self._take_answer(envelope)
            else:
                task = asyncio.create_task(self._reply(envelope))
                self._answering.add(task)
                task.add_done_callback(self._answering.discard)

    def connection_lost(self, error: Exception | None) -> None:
        if not self.lost.done():
            self.lost.set_result(None)
        for answer in self._asked.values():
            if not answer.done():
                answer.set_exception(EngineLost("the other process is gone"))
        for task in self._answering:
            task.cancel()

    def _take_answer(self, envelope: Envelope) -> None:
        asked = self._asked.get(envelope.number)
        if asked is None or asked.done():
            return
        if envelope.message is not None:
            asked.set_result(envelope.message)
        elif envelope.error is not None:
            asked.set_exception(from_info(envelope.error))

    async def _reply(self, question: Envelope) -> None:
        try:
            assert question.message is not None, "a question asks for something"
            reply = Envelope(question.number, True, await self._answer(question.message))
        except SteelyardError as error:
            reply = Envelope(question.number, True, error=to_info(error))
        except Exception:  # noqa: BLE001 (the process's edge: whoever asked must not wait)
            _log.exception("a question of the other process could not be answered")
            reply = Envelope(question.number, True, error=to_info(InternalError("")))
        self._send(reply)

    def _send(self, envelope: Envelope) -> None:
        if self._transport is not None and not self._transport.is_closing():
            self._transport.write(encode_frame(envelope))
