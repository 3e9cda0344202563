"""Connections to one server. A request never waits for one: there is no limit, and no queue.

A cap on connections would hide queueing inside the client, so the pool opens another one whenever
none is free. It counts what it does, and `audit` compares the counts with the requests in flight.
"""

import asyncio
import errno
import ssl
import time
from collections.abc import Callable
from dataclasses import dataclass

from steelyard.lab.client.connection import Connection
from steelyard.lab.client.exchange import Exchange
from steelyard.lab.client.target import Address
from steelyard.lab.outcomes import Outcome, RequestFlag

__all__ = ["ConnectionPool", "PoolCounts"]

_REUSE_FOR_S = 3.0
"""Servers close what is idle, uvicorn after 5 s; a request sent in that moment would be lost."""
_OUT_OF_DESCRIPTORS = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.EADDRNOTAVAIL})


@dataclass(slots=True)
class PoolCounts:
    """What a pool has done."""

    opened: int = 0
    busy: int = 0
    """Connections with a request on them now."""
    busy_peak: int = 0


class ConnectionPool:
    """Belongs to one event loop."""

    def __init__(
        self,
        address: Address,
        *,
        connect_timeout_s: float = 30.0,
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        self._address = address
        self._connect_timeout_s = connect_timeout_s
        self._now = now
        self._free: list[Connection] = []
        """The most recently used one is last and goes first."""
        self._open: set[Connection] = set()
        self._tls = ssl.create_default_context() if address.is_tls else None
        self.counts = PoolCounts()

    async def send(self, exchange: Exchange, request: bytes) -> None:
        """Put the request on a connection, or let the exchange fail when there can be none.

        Waits for nothing but a new connection; the answer arrives in the exchange.
        """
        connection = self._take_free()
        if connection is None:
            try:
                connection = await self._connect()
            except (OSError, TimeoutError) as error:
                exchange.fail(_failure(error), self._now(), f"cannot connect: {error}")
                return
            if not connection.is_open or exchange.outcome is not None:
                exchange.fail(Outcome.RESET, self._now(), "the connection was closed at once")
                connection.abort()
                return
            exchange.flags |= RequestFlag.NEW_CONNECTION
        self.counts.busy += 1
        self.counts.busy_peak = max(self.counts.busy_peak, self.counts.busy)
        exchange.done.add_done_callback(self._count_end)
        connection.send(exchange, request)

    def close(self) -> None:
        """Close everything; requests that run are reset. Safe to repeat."""
        for connection in tuple(self._open):
            connection.abort()
        self._open.clear()
        self._free.clear()

    def _take_free(self) -> Connection | None:
        limit_s = self._now() - _REUSE_FOR_S
        while self._free:
            connection = self._free.pop()
            if connection.is_open and connection.free_since_s > limit_s:
                return connection
            connection.abort()
        return None

    async def _connect(self) -> Connection:
        loop = asyncio.get_running_loop()
        address = self._address
        async with asyncio.timeout(self._connect_timeout_s):
            _, connection = await loop.create_connection(
                lambda: Connection(self._on_free, self._now),
                address.resolved or address.host,
                address.port,
                ssl=self._tls,
                server_hostname=address.host if self._tls is not None else None,
            )
        self.counts.opened += 1
        self._open.add(connection)
        return connection

    def _on_free(self, connection: Connection) -> None:
        if connection.is_open:
            self._free.append(connection)
        else:
            self._open.discard(connection)

    def _count_end(self, _: asyncio.Future[None]) -> None:
        self.counts.busy -= 1


def _failure(error: OSError) -> Outcome:
    is_ours = isinstance(error, OSError) and error.errno in _OUT_OF_DESCRIPTORS
    return Outcome.CLIENT_FAILED if is_ours else Outcome.CONNECT_FAILED
