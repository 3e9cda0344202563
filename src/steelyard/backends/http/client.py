"""The one place that speaks HTTP to engines: requests, streams of events, limits, translations.

Follows no redirects, keeps no cookies, asks no proxy of the environment. What is said is a
`dialect`'s business, when it is said `engine`'s.
"""

import contextlib
import ssl
import time
from collections.abc import AsyncIterator
from typing import Any

import aiohttp
import msgspec

from steelyard.backends.http.config import HttpConfig
from steelyard.backends.http.events import EventCutter
from steelyard.backends.http.failures import error_of_status, retry_after_s, translated
from steelyard.contract.errors import EngineFailed, SettingsError

__all__ = ["EventStream", "HttpClient"]

_READ_BYTES = 64 * 1024
_ERROR_BYTES = 64 * 1024


class EventStream:
    """Events of one answer. `close` may be called from elsewhere; reading then fails."""

    def __init__(self, response: aiohttp.ClientResponse, config: HttpConfig) -> None:
        self._response = response
        self._cutter = EventCutter(config.max_event_bytes)
        self._where = config.url

    async def read(self) -> list[bytes] | None:
        """Payloads that have arrived, maybe none; None at the end."""
        with translated(self._where):
            data = await self._response.content.readany()
        return self._cutter.feed(data) if data else None

    def close(self) -> None:
        """Break the connection, which tells the server that nobody listens any more."""
        self._response.close()


class HttpClient:
    """One endpoint. Used from one event loop; opened by the first request."""

    def __init__(self, config: HttpConfig) -> None:
        """Raises `SettingsError` when the certificates cannot be read."""
        self.config = config
        self._ssl = _trust(config)
        self._session: aiohttp.ClientSession | None = None

    async def get(self, path: str, *, timeout_s: float) -> bytes:
        """The answer's body."""
        return await self._ask("GET", path, None, timeout_s)

    async def get_json(self, path: str, *, timeout_s: float) -> Any:
        """The answer as plain values."""
        return self._decode(await self.get(path, timeout_s=timeout_s))

    async def post_json(self, path: str, body: object, *, timeout_s: float) -> Any:
        """The answer as plain values."""
        return self._decode(await self._ask("POST", path, body, timeout_s))

    async def post(self, path: str, body: object, *, timeout_s: float) -> bytes:
        """The answer's body."""
        return await self._ask("POST", path, body, timeout_s)

    @contextlib.asynccontextmanager
    async def events(self, path: str, body: object) -> AsyncIterator[EventStream]:
        """The answer as a stream of events, whose connection is closed at the end."""
        config = self.config
        timeout = aiohttp.ClientTimeout(
            total=None, sock_connect=config.connect_timeout_s, sock_read=config.silence_timeout_s
        )
        with translated(config.url):
            response = await self._send("POST", path, body, timeout)
        try:
            await self._refuse_failure(response)
            yield EventStream(response, config)
        finally:
            response.close()

    async def close(self) -> None:
        """Close all connections. Safe to repeat; a later request opens new ones."""
        session, self._session = self._session, None
        if session is not None:
            await session.close()

    async def _ask(self, method: str, path: str, body: object, timeout_s: float) -> bytes:
        timeout = aiohttp.ClientTimeout(total=timeout_s, sock_connect=self.config.connect_timeout_s)
        with translated(self.config.url):
            response = await self._send(method, path, body, timeout)
            async with response:
                await self._refuse_failure(response)
                return await _read(response, self.config.max_answer_bytes)

    async def _send(
        self, method: str, path: str, body: object, timeout: aiohttp.ClientTimeout
    ) -> aiohttp.ClientResponse:
        headers = {} if body is None else {"content-type": "application/json"}
        if self.config.api_key is not None:
            headers["authorization"] = f"Bearer {self.config.api_key}"
        data = None if body is None else msgspec.json.encode(body)

        async def send() -> aiohttp.ClientResponse:
            return await self._open_session().request(
                method,
                self.config.url + path,
                data=data,
                headers=headers,
                timeout=timeout,
                allow_redirects=False,
            )

        try:
            return await send()
        except aiohttp.ServerDisconnectedError:
            # The server had closed an idle connection in the same moment; a dead one refuses now.
            return await send()

    async def _refuse_failure(self, response: aiohttp.ClientResponse) -> None:
        """Raise what an answer other than 200 means."""
        if response.status == 200:
            return
        body = b""
        # A proxy's error page may be endless, or cut off: what has come is enough.
        with contextlib.suppress(aiohttp.ClientError, TimeoutError):
            body = await response.content.read(_ERROR_BYTES)
        delay_s = retry_after_s(response.headers.get("retry-after"), time.time())
        raise error_of_status(response.status, body, delay_s)

    def _decode(self, body: bytes) -> Any:
        try:
            return msgspec.json.decode(body)
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
            raise EngineFailed(f"{self.config.url} answered with what is no JSON") from error

    def _open_session(self) -> aiohttp.ClientSession:
        if self._session is None:
            # No limit of connections: the door has admitted these requests already.
            connector: aiohttp.BaseConnector
            if self.config.unix_path is not None:
                connector = aiohttp.UnixConnector(self.config.unix_path, limit=0)
            else:
                connector = aiohttp.TCPConnector(limit=0, ssl=self._ssl or True)
            self._session = aiohttp.ClientSession(
                connector=connector,
                cookie_jar=aiohttp.DummyCookieJar(),
                trust_env=False,
                read_bufsize=_READ_BYTES,
            )
        return self._session


async def _read(response: aiohttp.ClientResponse, max_bytes: int) -> bytes:
    body = bytearray()
    while data := await response.content.readany():
        body += data
        if len(body) > max_bytes:
            raise EngineFailed(f"an answer of the endpoint exceeds {max_bytes} bytes")
    return bytes(body)


def _trust(config: HttpConfig) -> ssl.SSLContext | None:
    """Whom to believe; None: whom the system believes."""
    if config.ca_file is None:
        return None
    try:
        return ssl.create_default_context(cafile=config.ca_file)
    except (OSError, ssl.SSLError) as error:
        raise SettingsError(
            f"{config.ca_file} holds no certificates that can be read ({error})",
            param="remote.ca_file",
            fix="name a PEM file with the certificate of the authority",
        ) from error
