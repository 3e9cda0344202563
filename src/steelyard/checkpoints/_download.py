"""Fetches one file over http(s) or from a file: URL, going on where an earlier attempt stopped.

Knows nothing about models; whoever calls it checks what arrived. Standard library only: this runs
a few times in a machine's life, from a command, and urllib honours the usual proxy variables.
"""

import http.client
import os
import re
import ssl
import time
import urllib.error
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from steelyard.checkpoints._folders import opened_for_writing
from steelyard.checkpoints.progress import PullProgress, Report

__all__ = ["DownloadFailed", "Web", "download"]

_PIECE_BYTES = 256 * 1024
_TIMEOUT_S = 30.0
_ATTEMPTS = 5
_RETRIED_STATUS = frozenset({408, 425, 429, 500, 502, 503, 504})
_TRANSPORT_ERRORS = (
    urllib.error.URLError,
    http.client.HTTPException,
    TimeoutError,
    ConnectionError,
)


class DownloadFailed(Exception):
    """This URL cannot give the file; what was fetched so far stays for the next attempt."""


class Web:
    """How requests leave this machine."""

    def __init__(self, proxy: str | None = None, certificates: Path | None = None) -> None:
        """`proxy` None means the environment's, `certificates` None the system's.

        Raises `DownloadFailed` when the certificates cannot be read.
        """
        proxies = None if proxy is None else {"http": proxy, "https": proxy}
        try:
            trust = ssl.create_default_context(cafile=certificates)
        except OSError as error:
            raise DownloadFailed(f"{certificates}: {error}") from error
        self._opener = urllib.request.build_opener(
            urllib.request.ProxyHandler(proxies), urllib.request.HTTPSHandler(context=trust)
        )

    def open(self, request: urllib.request.Request) -> Any:
        """The response, a context manager. The caller has checked the address."""
        return self._opener.open(request, timeout=_TIMEOUT_S)


def download(
    url: str,
    target: Path,
    *,
    total_bytes: int,
    report: Report,
    web: Web | None = None,
    sleep: Callable[[float], None] = time.sleep,
) -> None:
    """Bring `target` to `total_bytes` bytes, keeping those it has.

    Gives up with `DownloadFailed` after five attempts in a row that brought nothing. Errors of
    writing are `OSError`. A server that sends more than `total_bytes` is cut off there.
    """
    if urlsplit(url).scheme not in ("http", "https", "file"):
        raise DownloadFailed(f"{url}: only http, https and file addresses are fetched")
    web = web or Web()
    failures = 0
    while (have_bytes := _size(target)) < total_bytes:
        reason = "the connection ended early"
        try:
            with _ask_for_rest(url, have_bytes, web) as response:
                _store_rest(response, target, have_bytes, total_bytes, report)
        except _Interrupted as error:
            reason = str(error)
        failures = 0 if _size(target) > have_bytes else failures + 1
        if failures >= _ATTEMPTS:
            raise DownloadFailed(f"{url}: {reason}")
        if failures:
            sleep(min(0.5 * 2**failures, 8.0))


class _Interrupted(Exception):
    """The network's or the server's trouble, which may pass."""


def _ask_for_rest(url: str, have_bytes: int, web: Web) -> Any:
    request = urllib.request.Request(url)  # noqa: S310  the scheme was checked
    if have_bytes:
        request.add_header("Range", f"bytes={have_bytes}-")
    try:
        return web.open(request)
    except urllib.error.HTTPError as error:
        if error.code in _RETRIED_STATUS:
            raise _Interrupted(str(error)) from error
        raise DownloadFailed(f"{url}: the server answered {error.code}") from error
    except (OSError, http.client.HTTPException) as error:
        raise _Interrupted(str(getattr(error, "reason", error))) from error


def _store_rest(
    response: Any, target: Path, have_bytes: int, total_bytes: int, report: Report
) -> None:
    """Write one response behind what is there; returns when the server has no more to give."""
    if have_bytes and urlsplit(response.geturl()).scheme == "file":
        response.fp.seek(have_bytes)
    elif have_bytes and not _continues_at(response, have_bytes):
        have_bytes = 0  # the server sends the whole file again
    with opened_for_writing(target, append=have_bytes > 0) as descriptor:
        while have_bytes < total_bytes:
            piece = _read_piece(response, min(_PIECE_BYTES, total_bytes - have_bytes))
            if not piece:
                return
            _write_all(descriptor, piece)
            have_bytes += len(piece)
            report(PullProgress("downloading", target.name, have_bytes, total_bytes))


def _read_piece(response: Any, limit_bytes: int) -> bytes:
    # Apart from the writing, so that the network's errors are not taken for the disk's.
    try:
        piece: bytes = response.read(limit_bytes)
    except (OSError, http.client.HTTPException) as error:
        raise _Interrupted(str(error)) from error
    return piece


def _continues_at(response: Any, have_bytes: int) -> bool:
    if response.status != http.client.PARTIAL_CONTENT:
        return False
    match = re.match(r"bytes (\d+)-", response.headers.get("Content-Range", ""))
    return match is not None and int(match[1]) == have_bytes


def _write_all(descriptor: int, piece: bytes) -> None:
    view = memoryview(piece)
    while view:
        view = view[os.write(descriptor, view) :]


def _size(path: Path) -> int:
    try:
        return path.lstat().st_size
    except FileNotFoundError:
        return 0
