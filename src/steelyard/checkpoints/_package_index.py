"""Asks package indexes where a file is (PEP 503 and 691: the simple API, as HTML and as JSON).

What comes back is only an address; whoever fetches it checks what arrived. Indexes that need more
than an address (passwords, other protocols) are skipped: then pip fetches the file itself.
"""

import urllib.request
from collections.abc import Sequence
from html.parser import HTMLParser
from pathlib import PurePosixPath
from urllib.parse import unquote, urldefrag, urljoin, urlsplit

import msgspec

from steelyard.checkpoints._download import DownloadFailed, Web

__all__ = ["find_on_indexes"]

_ACCEPT = "application/vnd.pypi.simple.v1+json, text/html;q=0.1"
_MAX_PAGE_BYTES = 16 * 1024 * 1024


def find_on_indexes(indexes: Sequence[str], package: str, file_name: str, web: Web) -> str:
    """The address of a package's file. Raises `DownloadFailed` when no index tells it."""
    reasons = []
    for index in indexes:
        parts = urlsplit(index)
        if parts.scheme not in ("http", "https") or "@" in parts.netloc:
            continue
        page = f"{index.rstrip('/')}/{package}/"
        try:
            addresses = _addresses(page, web)
        except (OSError, ValueError, msgspec.MsgspecError, RecursionError) as error:
            reasons.append(f"{page}: {error}")
            continue
        for address in addresses:
            if unquote(PurePosixPath(urlsplit(address).path).name) == file_name:
                return urldefrag(address).url
        reasons.append(f"{page} has no {file_name}")
    raise DownloadFailed("; ".join(reasons) or "pip is set up with no index that can be asked")


def _addresses(page: str, web: Web) -> list[str]:
    """Every file of a package's page, as absolute addresses."""
    request = urllib.request.Request(page, headers={"Accept": _ACCEPT})  # noqa: S310  checked above
    with web.open(request) as response:
        body = response.read(_MAX_PAGE_BYTES).decode()
        base, kind = response.geturl(), response.headers.get("Content-Type", "")
    if "json" in kind:
        return [urljoin(base, file.url) for file in msgspec.json.decode(body, type=_Page).files]
    parser = _Links()
    parser.feed(body)
    return [urljoin(base, link) for link in parser.links]


class _File(msgspec.Struct, frozen=True):
    url: str


class _Page(msgspec.Struct, frozen=True):
    """What matters of a PEP 691 answer."""

    files: list[_File] = []


class _Links(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.links: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag == "a":
            self.links += [value for name, value in attrs if name == "href" and value]
