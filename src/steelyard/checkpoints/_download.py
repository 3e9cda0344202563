"""Fetches one file over http(s) or from a file: URL, going on where an earlier attempt stopped.

Knows nothing about models; whoever calls it checks what arrived. Standard library only: this runs
a few times in a machine's life, from a command, and urllib honours the usual proxy variables.
"""

import http.client
import os
import re
import time
import urllib.error
import urllib.request
from collections.abc import Callable
from pathlib import Path
from urllib.parse import urlsplit

from steelyard.checkpoints._folders import opened_for_writing
from steelyard.checkpoints.progress import PullProgress, Report

__all__ = ["DownloadFailed", "download"]

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


def download(
    url: str,
    target: Path,
    *,
    total_bytes: int,
    report: Report,
    sleep: Callable[[float], None] = time.sleep,
) -> None:
    """Bring `target` to `total_bytes` bytes, keeping those it has.

    Gives up with `DownloadFailed` after five attempts in a row that brought nothing. Errors of
    writing are `OSError`. A server that sends more than `total_bytes` is cut off there.
    """
    if urlsplit(url).scheme not in ("http", "https", "file"):
        raise DownloadFailed(f"{url}: only http, https and file addresses are fetched")
    failures = 0
    while True:
        have_bytes = _size(target)
        if have_bytes >= total_bytes:
            return
        try:
            _fetch_rest(url, target, have_bytes, total_bytes, report)
        except _TRANSPORT_ERRORS as error:
            _refuse_final(error, url)
            reason = str(getattr(error, "reason", None) or error)
        else:
            reason = "the connection ended early"
        failures = 0 if _size(target) > have_bytes else failures + 1
        if failures >= _ATTEMPTS:
            raise DownloadFailed(f"{url}: {reason}")
        if failures:
            sleep(min(0.5 * 2**failures, 8.0))


def _fetch_rest(url: str, target: Path, have_bytes: int, total_bytes: int, report: Report) -> None:
    """One request; returns when the server has no more to give."""
    request = urllib.request.Request(url)  # noqa: S310  the scheme was checked
    if have_bytes:
        request.add_header("Range", f"bytes={have_bytes}-")
    with urllib.request.urlopen(request, timeout=_TIMEOUT_S) as response:  # noqa: S310
        if have_bytes and urlsplit(url).scheme == "file":
            response.seek(have_bytes)
        elif have_bytes and not _continues_at(response, have_bytes):
            have_bytes = 0  # the server sends the whole file again
        _copy(response, target, have_bytes, total_bytes, report)


def _copy(
    response: http.client.HTTPResponse,
    target: Path,
    have_bytes: int,
    total_bytes: int,
    report: Report,
) -> None:
    with opened_for_writing(target, append=have_bytes > 0) as descriptor:
        while have_bytes < total_bytes:
            piece = response.read(min(_PIECE_BYTES, total_bytes - have_bytes))
            if not piece:
                return
            _write_all(descriptor, piece)
            have_bytes += len(piece)
            report(PullProgress("downloading", target.name, have_bytes, total_bytes))


def _continues_at(response: http.client.HTTPResponse, have_bytes: int) -> bool:
    if response.status != http.client.PARTIAL_CONTENT:
        return False
    match = re.match(r"bytes (\d+)-", response.headers.get("Content-Range", ""))
    return match is not None and int(match[1]) == have_bytes


def _write_all(descriptor: int, piece: bytes) -> None:
    view = memoryview(piece)
    while view:
        view = view[os.write(descriptor, view) :]


def _refuse_final(error: Exception, url: str) -> None:
    """Statuses that a repetition will not change end the download."""
    if isinstance(error, urllib.error.HTTPError) and error.code not in _RETRIED_STATUS:
        raise DownloadFailed(f"{url}: the server answered {error.code}") from error


def _size(path: Path) -> int:
    try:
        return path.lstat().st_size
    except FileNotFoundError:
        return 0
