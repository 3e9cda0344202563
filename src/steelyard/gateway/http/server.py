"""Listens, hands each request to one handler, watches deadlines, and stops gracefully.

    startup():  bind, start the sweep
    stop():     stop listening → idle connections close → running exchanges finish or are ended

The handler answers through its `Exchange` and catches what it can explain; what it does not catch
becomes a 500 here. Signals belong to `gateway.app`.
"""

import asyncio
import errno
import logging
import socket
from dataclasses import replace
from typing import cast

from aiohttp import web

from steelyard.contract.address import UnixAddress
from steelyard.contract.errors import InternalError, SettingsError
from steelyard.engine.listener import Listener
from steelyard.gateway.config import GatewayConfig
from steelyard.gateway.errors import Refusal, explain, http_refusal
from steelyard.gateway.http.answers import render_head
from steelyard.gateway.http.connection import ClientGone, Connection
from steelyard.gateway.http.exchange import Exchange
from steelyard.gateway.http.router import Handler
from steelyard.telemetry.metrics import Metrics

__all__ = ["HttpServer", "require_address"]

_log = logging.getLogger(__name__)


def require_address(config: GatewayConfig, *, setting: str = "gateway") -> None:
    """Raise `SettingsError` when the configured address cannot be had now. Keeps nothing."""
    try:
        found = socket.getaddrinfo(
            config.host, config.port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )
        for family, _, _, _, address in found:
            socket.create_server(address, family=family, reuse_port=config.reuse_port).close()
    except OSError as error:
        raise _cannot_listen(config, error, setting) from error


class HttpServer(web.Server):
    """One listening socket and its connections."""

    def __init__(
        self, handler: Handler, config: GatewayConfig, metrics: Metrics, *, setting: str = "gateway"
    ) -> None:
        """`setting` is the section that names the address, for errors."""
        # handler_cancellation: a client that leaves ends its request, streaming or not.
        super().__init__(self._serve, handler_cancellation=True)
        self._handler = handler
        self._config = config
        self._metrics = metrics
        self._setting = setting
        self._listener: asyncio.Server | None = None
        self._socket_file: Listener | None = None
        self._sweep_handle: asyncio.TimerHandle | None = None
        self._open: set[Connection] = set()
        self._exchanges: set[Exchange] = set()
        self._quiet = asyncio.Event()
        self._is_stopping = False

    @property
    def address(self) -> tuple[str, int]:
        """Host and port listened on. Valid between `startup` and `shutdown`."""
        assert self._listener is not None, "not started"
        host, port, *_ = self._listener.sockets[0].getsockname()
        return host, port

    @property
    def where(self) -> str:
        """The address for people. Valid between `startup` and `shutdown`."""
        if self._config.unix_socket is not None:
            return f"unix:{self._config.unix_socket}"
        host, port = self.address
        return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"

    async def startup(self) -> None:
        """Bind and accept. Raises `SettingsError` when the address cannot be had."""
        config = self._config
        try:
            if config.unix_socket is None:
                self._listener = await self._listen(config)
            else:
                self._listener = await self._listen_unix(config.unix_socket)
        except OSError as error:
            raise _cannot_listen(config, error, self._setting) from error
        self._sweep()

    def adopt(self, config: GatewayConfig) -> None:
        """Follow other limits, from the next connection and request on. The address stays."""
        self._config = replace(
            config,
            host=self._config.host,
            port=self._config.port,
            reuse_port=self._config.reuse_port,
            unix_socket=self._config.unix_socket,
        )

    async def stop(self, hurry: asyncio.Event) -> None:
        """Stop accepting, let running exchanges finish, end those that do not.

        They have the configured grace period, or until `hurry` is set. Streams that are ended get
        an error event. Safe to repeat.
        """
        self._is_stopping = True
        if self._listener is not None:
            self._listener.close()
        if self._socket_file is not None:
            self._socket_file.close()
        for connection in list(self._open):
            connection.close_if_idle()
        for exchange in self._exchanges:
            exchange.close = True
        if not await self._until_quiet(self._config.shutdown_grace_s, hurry):
            _log.warning("%d requests did not finish in time and are ended", len(self._exchanges))
            for exchange in list(self._exchanges):
                exchange.interrupt(_STOPPING)
            await self._until_quiet(_ENDING_S, asyncio.Event())
        if self._sweep_handle is not None:
            self._sweep_handle.cancel()
        await self.shutdown(_ENDING_S)

    # What aiohttp calls.

    def connection_made(self, handler: web.RequestHandler, transport: asyncio.Transport) -> None:
        super().connection_made(handler, transport)
        assert isinstance(handler, Connection)
        self._open.add(handler)

    def connection_lost(
        self, handler: web.RequestHandler, exc: BaseException | None = None
    ) -> None:
        super().connection_lost(handler, exc)
        assert isinstance(handler, Connection)
        handler.count_close()
        self._open.discard(handler)

    async def _serve(self, request: web.BaseRequest) -> web.StreamResponse:
        connection = request.protocol
        assert isinstance(connection, Connection)
        exchange = Exchange(request, connection, self._config.http, close=self._is_stopping)
        self._exchanges.add(exchange)
        try:
            await self._handler(exchange)
        except asyncio.CancelledError:
            # Either the client is gone, or we are stopping and owe it an explanation.
            if exchange.interrupted_by is not None:
                await exchange.refuse(exchange.interrupted_by)
            raise
        except ClientGone:
            raise  # aiohttp closes the connection
        except Exception:  # noqa: BLE001 the process's edge: one request's bug is not the others'
            _log.exception("request %s failed", exchange.request_id)
            await exchange.refuse(explain(InternalError("")))
        finally:
            self._exchanges.discard(exchange)
            connection.answered(will_close=exchange.close)
            self._metrics.http_response(exchange.route, exchange.status)
            if self._is_stopping and not self._exchanges:
                self._quiet.set()
        return _CLOSE if exchange.close else _KEEP

    async def _listen(self, config: GatewayConfig) -> asyncio.Server:
        return await asyncio.get_running_loop().create_server(
            self._connect,
            config.host,
            config.port,
            backlog=config.http.backlog,
            reuse_port=config.reuse_port or None,
        )

    async def _listen_unix(self, path: str) -> asyncio.Server:
        """For this user alone; removes the file of a predecessor that died."""
        try:
            self._socket_file = Listener(UnixAddress(path))
        except SettingsError as error:
            raise SettingsError(
                error.message, param=f"{self._setting}.socket", fix="name another file"
            ) from error
        return await asyncio.get_running_loop().create_unix_server(
            self._connect, sock=self._socket_file.socket.dup()
        )

    def _connect(self) -> asyncio.Protocol:
        meter = self._metrics.connection()
        if len(self._open) >= self._config.http.max_connections:
            meter.closed("limit")
            return _Surplus(self._config.http.linger_s)
        return Connection(self, self._config.http, meter, self._loop)

    async def _until_quiet(self, timeout_s: float, hurry: asyncio.Event) -> bool:
        """True once no exchange is left; False after `timeout_s`, or when `hurry` is set."""
        self._quiet.clear()
        if not self._exchanges:
            return True
        waiters = [asyncio.ensure_future(event.wait()) for event in (self._quiet, hurry)]
        await asyncio.wait(waiters, timeout=timeout_s, return_when=asyncio.FIRST_COMPLETED)
        for waiter in waiters:
            waiter.cancel()
        return not self._exchanges

    def _sweep(self) -> None:
        """Compare every connection's deadlines with the clock: O(connections), a few times a
        second, instead of timers for every request."""
        now_s = self._loop.time()
        for connection in list(self._open):
            connection.check_deadlines(now_s)
        self._sweep_handle = self._loop.call_later(_sweep_s(self._config), self._sweep)


class _Answered(web.StreamResponse):
    """Tells aiohttp that the exchange has written its answer, and whether to go on."""

    def __init__(self, *, keep_alive: bool) -> None:
        super().__init__()
        self._keep_alive = keep_alive

    async def prepare(self, request: web.BaseRequest) -> None:
        return None

    async def write_eof(self, data: bytes = b"") -> None:
        return None


_KEEP = _Answered(keep_alive=True)
_CLOSE = _Answered(keep_alive=False)

_ENDING_S = 1.0
"""How long exchanges that are ended, and closing connections, may take to say goodbye."""

_STOPPING = Refusal(
    503,
    "The server is shutting down. Please retry the request.",
    kind="service_unavailable_error",
    code="shutting_down",
    retry_after_s=1.0,
    close=True,
)


class _Surplus(asyncio.Protocol):
    """A connection too many: told so, and closed before it can cost much."""

    def __init__(self, linger_s: float) -> None:
        self._linger_s = linger_s

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        transport = cast(asyncio.Transport, transport)  # uvloop's does not inherit from it
        refusal = http_refusal(503, "too_many_connections", "The server has too many connections.")
        head = render_head(
            503,
            "application/json",
            (("retry-after", "1"),),
            length=len(refusal.body),
            close=True,
        )
        transport.write(head + refusal.body)
        # Closing over a request that was not read would reset the connection, and the client
        # would see that instead of the answer.
        transport.write_eof()
        asyncio.get_running_loop().call_later(self._linger_s, transport.abort)


def _sweep_s(config: GatewayConfig) -> float:
    http = config.http
    shortest_s = min(http.header_timeout_s, http.idle_timeout_s, http.write_timeout_s)
    return min(max(min(shortest_s, http.linger_s) / 4, 0.02), 0.5)


def _cannot_listen(config: GatewayConfig, error: OSError, setting: str) -> SettingsError:
    if config.unix_socket is not None:
        return SettingsError(
            f"cannot listen on {config.unix_socket}: {error.strerror or error}",
            param=f"{setting}.socket",
            fix="name a file, of up to 100 bytes, in a folder that this user can write to",
        )
    where = f"{config.host}:{config.port}"
    if error.errno == errno.EADDRINUSE:
        return SettingsError(
            f"{where} is in use by another program",
            param=f"{setting}.port",
            fix="stop it, or set another port (0 takes a free one)",
        )
    if error.errno == errno.EACCES:
        return SettingsError(
            f"this user may not listen on {where}",
            param=f"{setting}.port",
            fix="use a port of 1024 or above",
        )
    return SettingsError(
        f"cannot listen on {where}: {error.strerror or error}",
        param=f"{setting}.host",
        fix="use an address of this machine, such as 127.0.0.1",
    )
