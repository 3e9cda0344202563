"""Orders over a Unix socket that only this user can open: one line of JSON each way.

The socket's file permissions are the access control, so there is nothing to log in to. It is no
part of the service's network face.
"""

import asyncio
import contextlib
import os
from collections.abc import Awaitable, Callable
from pathlib import Path

import msgspec

from steelyard.contract.errors import EngineLost, ProtocolError, SettingsError, from_info, to_info
from steelyard.fleet.orders import Answer, Order

__all__ = ["AdminSocket", "give_order"]

_LINE_BYTES = 1 << 20
_ORDERS = msgspec.json.Decoder(Order)


class AdminSocket:
    """Listens at `path` between `startup` and `shutdown`."""

    def __init__(self, path: Path, answer: Callable[[Order], Awaitable[Answer]]) -> None:
        self._path = path
        self._answer = answer
        self._server: asyncio.Server | None = None

    async def startup(self) -> None:
        """Begin to listen. Raises `SettingsError` when somebody else does, or it cannot be."""
        if await _is_answered(self._path):
            raise SettingsError(
                f"a fleet is running already with {self._path.parent}",
                fix="stop it with `steelyard down`, or give this one a state_dir of its own",
            )
        with contextlib.suppress(FileNotFoundError):
            self._path.unlink()
        mask = os.umask(0o177)
        try:
            self._server = await asyncio.start_unix_server(
                self._serve, str(self._path), limit=_LINE_BYTES
            )
        except OSError as error:
            raise SettingsError(f"cannot listen on {self._path}: {error.strerror}") from error
        finally:
            os.umask(mask)

    async def shutdown(self) -> None:
        """Stop listening. Safe to repeat."""
        server, self._server = self._server, None
        if server is not None:
            server.close()
            with contextlib.suppress(FileNotFoundError):
                self._path.unlink()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(ConnectionError, asyncio.IncompleteReadError, ValueError):
            line = await reader.readuntil(b"\n")
            writer.write(msgspec.json.encode(await self._respond(line)) + b"\n")
            await writer.drain()
        writer.close()

    async def _respond(self, line: bytes) -> Answer:
        try:
            order = _ORDERS.decode(line)
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
            return Answer(error=to_info(ProtocolError(f"no order: {error}")))
        return await self._answer(order)


async def give_order(path: Path, order: Order) -> Answer:
    """Have an order carried out by the fleet that listens at `path`; returns when it is done.

    Raises `EngineLost` when there is none, and what the order ended with.
    """
    try:
        reader, writer = await asyncio.open_unix_connection(str(path), limit=_LINE_BYTES)
    except OSError as error:
        raise EngineLost(
            f"no fleet is running with {path.parent}", fix="start one with `steelyard up`"
        ) from error
    try:
        writer.write(msgspec.json.encode(order) + b"\n")
        answer = msgspec.json.decode(await reader.readline(), type=Answer)
    except (OSError, msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise EngineLost("the fleet ended before it had answered") from error
    finally:
        writer.close()
    if answer.error is not None:
        raise from_info(answer.error)
    return answer


async def _is_answered(path: Path) -> bool:
    try:
        _, writer = await asyncio.open_unix_connection(str(path))
    except OSError:
        return False
    writer.close()
    return True
